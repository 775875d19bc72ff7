"""A continuous monitor: its state, and its reports after failed polls."""

from __future__ import annotations

import re
import threading
import urllib.error
import urllib.request

import pytest
from tests.monitor.watched import Watched
from tests.patience import wait_until

from weft.errors import ConfigError
from weft.monitor.columns import Column
from weft.monitor.diagnose import diagnose
from weft.monitor.exporter import render
from weft.monitor.listen import Listener, parse_address
from weft.monitor.metrics import Family, labels
from weft.monitor.poll import Poller
from weft.monitor.watch import Watch

C = Column


class Stage(Watched):
    """A watched subnet whose monitor polls on request."""

    def __init__(self) -> None:
        super().__init__()
        self.said = list[str]()  # errors of failed rounds
        self.watch = Watch(
            self.poller, every_s=10.0, diagnose=diagnose, tell=self.said.append, clock=lambda: self.now_s
        )

    def tick(self, after_s: float = 10.0):
        self.now_s += after_s
        self.wall_s += after_s
        return self.watch.tick()

    def metrics(self, after_s: float = 0.0, more=()) -> dict[str, float]:
        """Return the metrics by name and labels."""
        messages = render(self.watch.latest, now_s=self.now_s + after_s, more=more).decode()
        return {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in messages.splitlines() if line[0] != "#"
        }

    def sample(self, port: str) -> str:
        result = self.fabric.find_port(port)
        guid = self.fabric.ports.guid[result.slot] if port.startswith("h") else result.node.guid
        return f'{{guid="0x{guid:016x}",port="{result.number}"}}'


@pytest.fixture
def stage() -> Stage:
    result = Stage()
    result.carrier.send, result.carrier.poll = result.carrier.carrier.send, result.carrier.carrier.poll
    return result


def test_counters_have_the_names_of_infiniband_exporter(stage):
    stage.count("leaf1/1", C.SYMBOL_ERROR, 7)
    stage.count("h8/1", C.PORT_XMIT_DATA_WORDS, 1 << 61)  # in bytes it has more bits than a signed number
    stage.tick()
    messages = stage.metrics()
    assert messages["infiniband_switch_port_symbol_error_total" + stage.sample("leaf1/1")] == 7
    assert messages["infiniband_hca_port_transmit_data_bytes_total" + stage.sample("h8/1")] >= 1 << 63
    port = stage.fabric.find_port("leaf1/1")
    assert (
        messages["infiniband_switch_port_rate_bytes_per_second" + stage.sample("leaf1/1")]
        == port.link.rate_gbit_s * 1e9 / 8
    )
    far = port.peer
    guid = stage.fabric.ports.guid[far.slot]
    uplink = f'port="1",switch="leaf1",uplink="h1 mlx5_0",uplink_guid="0x{guid:016x}",uplink_type="CA"'
    assert any(name.startswith("infiniband_switch_uplink_info") and uplink in name for name in messages)
    assert messages["weft_port_info" + stage.sample("leaf1/1").replace("}", ',name="leaf1/1"}')] == 1
    assert messages["weft_monitor_up"] == 1
    assert messages["weft_sm_up"] == 0  # it stands still here


def test_a_lab_whose_clock_is_faster_is_no_older_for_it(stage):
    stage.poller.clock = lambda: 100 * stage.now_s
    stage.tick()
    before = stage.metrics()["weft_monitor_clock_seconds_total"]
    latest = stage.tick(10)
    assert (latest.change.seconds, latest.change_s) == (1000, 10)
    messages = stage.metrics(after_s=4)
    assert messages["weft_monitor_reading_age_seconds"] == 4
    assert messages["weft_monitor_clock_seconds_total"] == before + 1000


def test_a_lab_that_was_begun_anew_has_another_clock(stage):
    stage.tick()
    stage.poller.clock = lambda: stage.now_s - 500
    assert stage.tick().change is None
    assert stage.tick().change.seconds == 10


def test_every_name_is_told_of_once_and_has_a_type(stage):
    stage.tick()
    text = render(stage.watch.latest, now_s=stage.now_s).decode()
    types = re.findall(r"^# TYPE (\S+) ", text, re.M)
    assert len(types) == len(set(types))
    assert {re.split("[{ ]", line)[0] for line in text.splitlines() if line[0] != "#"} == set(types)


def test_unknown_values_have_no_sample(stage):
    stage.tick()
    stage.carrier.silent = {stage.devices.lid(stage.slot("h8/1"))}
    stage.tick()
    messages = stage.metrics()
    assert not any(name.endswith(stage.sample("h8/1")) and "_total" in name for name in messages)
    assert "infiniband_hca_port_symbol_error_total" + stage.sample("h7/1") in messages
    assert messages["weft_monitor_silent_ports"] == 1
    assert messages['weft_monitor_events_total{kind="silent"}'] == 1


def test_two_scrapes_of_one_reading_are_the_same(stage):
    stage.tick()
    stage.count("leaf1/1", C.SYMBOL_ERROR, 7)
    assert render(stage.watch.latest, now_s=stage.now_s) == render(stage.watch.latest, now_s=stage.now_s)


def test_an_old_reading_is_not_told_as_the_present(stage):
    stage.tick()
    assert any(name.startswith("infiniband_") for name in stage.metrics(after_s=29))
    old = stage.metrics(after_s=31)
    assert old == {
        "weft_monitor_up": 0,
        "weft_monitor_polls_total": 1,
        "weft_monitor_failures_total": 0,
        "weft_monitor_reading_age_seconds": 31,
    }


def test_a_round_that_fails_says_so_and_the_next_has_a_new_poller(stage):
    stage.tick()
    good = stage.poller

    class Gone:
        carrier = good.carrier

        def poll(self):
            raise ConfigError("lab mine is gone")

    stage.watch._poller, stage.watch._again = Gone(), Gone
    assert stage.tick().failure == stage.tick().failure == "lab mine is gone"
    stage.watch._again = lambda: good
    messages = stage.metrics()
    assert messages["weft_monitor_up"] == 0
    assert messages["weft_monitor_failures_total"] == 2
    assert not any(name.startswith("infiniband_") for name in messages)
    latest = stage.tick()
    assert not latest.failure
    assert latest.change.seconds == 30  # nothing was read between
    assert stage.metrics()["weft_monitor_up"] == 1
    assert stage.said == ["lab mine is gone", ""]


def test_suspects_are_told(stage):
    stage.tick()
    for _ in range(2):
        stage.count("leaf1/1", C.SYMBOL_ERROR, 100_000)
        stage.tick()
    messages = stage.metrics()
    assert messages["weft_suspects"] == 1
    assert any(re.match(r'weft_suspect_confidence\{port="leaf1/1",peer="h1/1",kind="', name) for name in messages)


def test_service_can_add_its_own_metrics(stage):
    more = [Family("weft_tenants", "Tenants.", "gauge", [(labels(name='a"b\\c\n'), 2)])]
    assert stage.metrics(more=more)['weft_tenants{name="a\\"b\\\\c\\n"}'] == 2


def test_the_thread_polls_until_it_is_stopped(stage):
    watch = Watch(Poller(stage.carrier), every_s=0.01)
    with watch:
        wait_until(lambda: watch.latest.polls >= 3)
    polls = watch.latest.polls
    assert watch.latest.polls == polls
    assert not watch.latest.failure


def test_prometheus_is_answered_over_http():
    with Listener("127.0.0.1:0", lambda: b"a 1\n") as door:
        with urllib.request.urlopen(door.url) as answer:
            assert answer.read() == b"a 1\n"
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(door.url + "/more")
        where = door.url.removeprefix("http://").removesuffix("/metrics")
        with pytest.raises(ConfigError, match=r"cannot listen at .*--listen"):
            Listener(where, lambda: b"")


@pytest.mark.parametrize("text", ["9315", ":9315", "localhost", "h:70000", "h:-1", "h:x", ""])
def test_places_that_are_none(text):
    with pytest.raises(ConfigError, match="is not an address"):
        parse_address(text)


def test_places():
    assert parse_address("[::1]:9315") == ("::1", 9315)
    assert parse_address("127.0.0.1:0") == ("127.0.0.1", 0)


def test_all_looks_of_a_day_are_one_diagnosis(stage):
    stage.tick()
    alone = stage.tick().diagnosis
    assert alone is not None
    assert alone.tests == 720 * diagnose([stage.watch.latest.change]).tests  # a day has 720 times two minutes


def test_a_stopped_monitor_has_no_thread_and_one_that_never_started_can_be_stopped(stage):
    stage.watch.stop()
    watch = Watch(stage.poller, every_s=10.0, clock=lambda: stage.now_s).start()
    watch.stop()
    assert "weft monitor" not in {thread.name for thread in threading.enumerate()}
