"""Data of the packet engine in a running lab, with its tables and its counters."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.lab.rdma import managed
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.errors import ConfigError, SubnetError, UnknownName
from weft.fabric import faults
from weft.fabric.counters import Counter
from weft.lab import commands, event_loop, registry, traffic
from weft.lab.lab import Lab
from weft.mad import administrator


@pytest.fixture
def lab():
    """Start a lab with a subnet manager that answers hosts, and keeps the tables when a cable breaks."""
    with (
        Lab(weft.load("fat-tree:hosts=16,radix=8")) as running,
        managed(running, sweep_on_trap=False, sweep_interval_s=0),
    ):
        yield running


def sent_bytes(lab):
    """Return the bytes that all ports sent, with MADs."""
    return 4 * int(lab.fabric_now().counters[:, Counter.PORT_XMIT_DATA_WORDS].sum())


def test_traffic_is_counted_at_the_ports_that_it_passes(lab):
    before = sent_bytes(lab)
    report = lab.traffic(size_bytes=100_000)
    assert report["delivered"] == report["messages"] == 16
    assert sent_bytes(lab) - before > 2 * report["payload_bytes"], "each message passes two links or more"


def test_a_bad_cable_shows_in_the_counters_of_its_ports(lab):
    lab.degrade("leaf1/5", 1e-6)
    report = lab.traffic("all-to-all", 200_000)
    assert report["corrupted_packets"] > 0
    errors = lab.fabric.counters[:, Counter.PORT_RCV_ERRORS]
    cable = {lab.fabric["leaf1/5"].slot, lab.fabric["leaf1/5"].peer.slot}
    assert errors.sum() > 0
    assert set(errors.nonzero()[0].tolist()) <= cable


def test_hosts_whose_tables_still_lead_to_a_broken_cable_cannot_even_ask(lab):
    lab.break_cable("leaf1/5")
    with pytest.raises(SubnetError, match=r"h\d+/1 has no answer from the subnet administrator at LID 7"):
        lab.traffic("all-to-all", 1_000)


def test_a_host_without_its_cable_takes_no_part(lab):
    lab.break_cable("h3/1")
    assert lab.traffic("shift", 1_000)["messages"] == 15


def test_a_torus_whose_paths_need_service_levels_does_not_deadlock():
    """On SL 0 alone, which no host uses after a path query, it deadlocks after 32 us."""
    with Lab(weft.load("torus:6x6,hosts=2")) as torus, managed(torus):
        report = torus.traffic("all-to-all", 65_536)
    assert report["delivered"] == 72 * 71


def test_nothing_crosses_tenants(tmp_path):
    fabric, conf = weft.load("fat-tree:hosts=16,radix=8"), tmp_path / "partitions.conf"
    guids = [int(fabric.ports.guid[fabric[f"h{number}/1"].slot]) for number in range(2, 17)]
    tenants = [", ".join(f"0x{guid:016x}=full" for guid in guids[5 * item : 5 * item + 5]) for item in range(3)]
    lines = ["Default=0x7fff : ALL, SELF=full ;", *(f"t{n}=0x{n + 1:x} : {owner} ;" for n, owner in enumerate(tenants))]
    conf.write_text("\n".join(lines) + "\n")
    with Lab(fabric) as divided, managed(divided, partition_config_file=conf):
        report = divided.traffic("all-to-all", 10_000)
    own, with_manager = 3 * 5 * 4, 2 * 15
    assert (report["delivered"], report["without_path"]) == (own + with_manager, 16 * 15 - own - with_manager)


def test_unknown_names_are_refused_by_name(lab):
    with pytest.raises(UnknownName, match="did you mean incast"):
        lab.traffic("incst")
    with pytest.raises(UnknownName, match="zigzag"):
        lab.traffic(paths="zigzag")


# -- a lab serves requests during traffic ------------------------------------------------------------------------------

ENDLESS_BYTES = 200 * 1000**3  # a permutation of it takes hours
MADS_BYTES = 10_000_000  # more than all requests and answers; less than a message


def end(*_: int) -> None:
    raise KeyboardInterrupt


def test_commands_are_answered_while_the_kernel_runs(lab, monkeypatch):
    """The whole run is one call of the kernel: answers before its end are given at the same time."""
    from weft.sim.packet import parallel

    running, run_events = threading.Event(), parallel.run_events
    lab.traffic(size_bytes=1000)  # compiled

    def watched(state, budget):
        if budget:
            running.set()
        return run_events(state, budget)

    monkeypatch.setattr(parallel, "run_events", watched)
    monkeypatch.setattr(parallel, "SLICE_EVENTS", 1 << 60)
    reports: list[dict] = []
    worker = threading.Thread(target=lambda: reports.append(lab.traffic(size_bytes=200_000_000)), daemon=True)
    worker.start()
    assert running.wait(PATIENCE_S)
    answered = 0
    while not reports:
        assert lab.state()["traffic"].startswith("permutation") or reports or not worker.is_alive()
        answered += not reports
    assert answered > 1
    assert lab.state()["traffic"] == ""


def test_progress_is_told_and_who_asked_can_end_it(lab):
    messages: list[tuple[int, int]] = []
    lab.traffic("all-to-all", 10_000, progress=lambda *how_far: messages.append(how_far))
    assert messages[-1] == (240, 240)
    before = sent_bytes(lab)
    with pytest.raises(KeyboardInterrupt):
        lab.traffic(size_bytes=ENDLESS_BYTES // 1000, progress=end)
    assert sent_bytes(lab) - before < MADS_BYTES
    assert lab.traffic(size_bytes=1000)["delivered"] == 16


def test_tables_that_change_meanwhile_change_nothing(lab):
    """The run uses the tables at its start."""

    def wipe(*_: int) -> None:
        lab.fabric.tables.lft[:] = 255

    assert lab.traffic("all-to-all", 10_000_000, progress=wipe)["delivered"] == 240


def test_one_at_a_time(lab):
    refused: list[str] = []

    def second(*_: int) -> None:
        with pytest.raises(ConfigError) as error:
            lab.traffic("incast")
        refused.append(str(error.value))

    lab.traffic(size_bytes=1000, progress=second)
    assert "traffic is on its way through this lab, permutation, 16 of 16 messages" in refused[-1]


def test_too_large_traffic_is_refused_before_it_is_built(lab, monkeypatch):
    with pytest.raises(ConfigError, match=r"4,882,812,512 packets.*\n.*weft sim"):
        lab.traffic("shift", 1250 * 1000**3)
    monkeypatch.setattr(traffic, "MOST_BYTES", 239 * traffic.MESSAGE_BYTES)
    with pytest.raises(ConfigError, match=r"all-to-all is too much for a lab: 240 messages, 240 packets, some 0.0 GB"):
        lab.traffic("all-to-all", 1000)


def test_a_client_that_goes_away_ends_its_traffic(lab, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    served = commands.serve_commands(lab, registry.entry("gone"))
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(served.server_address)
            line.sendall(json.dumps({"do": "traffic", "size_bytes": ENDLESS_BYTES // 1000}).encode() + b"\n")
            with line.makefile("rb") as answer:
                assert json.loads(answer.readline())["progress"][1] == 16
            assert lab.state()["traffic"]
        wait_until(lambda: not lab.state()["traffic"], "the end of the traffic")
        assert sent_bytes(lab) < MADS_BYTES
    finally:
        served.server_close()


def test_a_lab_that_does_not_come_to_it_says_so_and_does_not_do_it_later(monkeypatch):
    monkeypatch.setattr(event_loop, "_TIMEOUT_S", 0.01)
    waiting = event_loop.Calls()
    done: list[int] = []
    with pytest.raises(SubnetError, match=r"the lab has not come to it within 0\.01 s"):
        waiting.call(lambda: done.append(1))
    waiting.run()
    assert done == []
    waiting.close()


def test_a_lab_that_is_at_it_is_waited_for(monkeypatch):
    """A client that got an error would repeat the command, so there is no timeout."""
    monkeypatch.setattr(event_loop, "_TIMEOUT_S", 0.01)
    waiting, begun, may_end = event_loop.Calls(), threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        assert may_end.wait(PATIENCE_S)
        return "done"

    def serve() -> None:
        while not begun.is_set():
            waiting.run()

    lab = threading.Thread(target=serve)
    with ThreadPoolExecutor(1) as rest:
        answer = rest.submit(_until_begun, waiting, work, begun)
        lab.start()
        assert begun.wait(PATIENCE_S)
        try:
            with pytest.raises(TimeoutError):  # ten times its timeout
                answer.result(0.1)
        finally:
            may_end.set()
        assert answer.result(PATIENCE_S) == "done"
    lab.join()
    waiting.close()


def _until_begun(waiting: event_loop.Calls, work: Callable[[], str], begun: threading.Event) -> str:
    """Call until the lab begins in time, which may take several calls on a busy machine."""
    while True:
        try:
            return waiting.call(work)
        except SubnetError:
            if begun.is_set():
                raise


def test_a_host_sends_no_faster_than_its_path(monkeypatch):
    """It learns the path's rate: otherwise its packets would fill the switch's buffer and wait for credits."""
    fabric = faults.slow(weft.load("star:hosts=3"), "h3/1", "1xSDR")
    with Lab(fabric) as lab, managed(lab):
        lab.traffic("shift", 100_000)
        waited = lab.fabric_now().counters[:, Counter.PORT_XMIT_WAIT]
        assert waited[fabric["h2/1"].slot] == 0
        monkeypatch.setattr(administrator, "data_gbit_s", lambda: np.full(64, np.inf))
        lab.traffic("shift", 100_000)
        assert lab.fabric_now().counters[fabric["h2/1"].slot, Counter.PORT_XMIT_WAIT] > 0
