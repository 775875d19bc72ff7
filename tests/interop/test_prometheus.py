"""Prometheus, its node_exporter and infiniband-diags check the monitor's metrics of a lab under load."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.documents import find_block
from tests.lab.mounts import need_mounts
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.fabric.files import ibnetdiscover
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.monitor.columns import Column
from weft.monitor.diagnose import diagnose
from weft.monitor.exporter import render
from weft.monitor.files import DASHBOARD, RULES, read
from weft.monitor.listen import Listener
from weft.monitor.metrics import PORT_METRICS
from weft.monitor.poll import Poller
from weft.monitor.watch import Latest, Watch
from weft.sm.conf.options import Options
from weft.sm.run import SubnetManager

pytestmark = pytest.mark.interop
SICK = "leaf1/3"  # to a spine


@contextmanager
def managed_lab(name: str) -> Iterator[Lab]:
    """Start a lab with weft's subnet manager on h1, which keeps running."""
    with Lab(weft.load("fat-tree:hosts=8,radix=4"), name) as lab:
        carrier = IbsimCarrier("h1", lab.sockname)
        manager = SubnetManager(carrier, Options())
        thread = threading.Thread(target=manager.run, daemon=True)
        thread.start()
        wait_until(lambda: manager.report is not None, "a first sweep")
        try:
            yield lab
        finally:
            manager.stop()
            thread.join(PATIENCE_S)
            carrier.close()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Start a lab under load whose clock has advanced by an hour; it stands still unless a test advances it."""
    with managed_lab(f"prom{time.monotonic_ns() % 10**9}") as lab:
        lab.load("train=ring:h[1-8]@50%", speed=0)
        lab.degrade(SICK, 1e-9)
        lab.advance(3600)
        lab.fix()
        yield lab


@pytest.fixture
def poller(lab) -> Iterator[Poller]:
    carrier = IbsimCarrier("h2", lab.sockname)
    yield Poller(carrier)
    carrier.close()


# -- promtool ---------------------------------------------------------------------------------------------------------


def promtool(peer, *words: str, text: str = "") -> str:
    done = subprocess.run([peer("promtool"), *words], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_takes_the_metrics(peer, poller):
    watch = Watch(poller, diagnose=diagnose)
    watch.tick()
    messages = render(watch.tick(), now_s=time.monotonic()).decode()
    assert "weft_suspects" in messages
    assert promtool(peer, "check", "metrics", text=messages) == ""


def test_promtool_takes_the_configuration_of_the_documentation(peer, tmp_path):
    (tmp_path / "weft.rules.yml").write_text(read(RULES))  # as the block before it does
    (tmp_path / "prometheus.yml").write_text(find_block("docs/monitor.md", "scrape_configs:"))
    assert "SUCCESS: 1 rule files found" in promtool(peer, "check", "config", str(tmp_path / "prometheus.yml"))


def test_promtool_takes_the_rules_and_they_do_what_they_say(peer, tmp_path):
    """A cable with errors for ten minutes raises an alert, which ends after twelve minutes without errors."""
    (tmp_path / RULES).write_text(read(RULES))
    assert "SUCCESS" in promtool(peer, "check", "rules", str(tmp_path / RULES))
    item = '{guid="0x1",port="1"}'
    good = {"guid": "0x2", "port": "1"}
    series = {
        f"infiniband_switch_port_symbol_error_total{item}": "0+30x10 300x40",
        f"infiniband_switch_port_rate_bytes_per_second{item}": "5e10x60",
        'infiniband_hca_port_symbol_error_total{guid="0x2",port="1"}': "0+30x10 300x40",
        'infiniband_hca_rate_bytes_per_second{guid="0x2"}': "5e10x60",
        'infiniband_switch_port_symbol_error_total{guid="0x3",port="1"}': "7x60",  # old counts
        'infiniband_switch_port_rate_bytes_per_second{guid="0x3",port="1"}': "5e10x60",
        'infiniband_switch_port_symbol_error_total{guid="0x4",port="1"}': "500x5 2x55",  # reset by an operator
        'infiniband_switch_port_rate_bytes_per_second{guid="0x4",port="1"}': "5e10x60",
        f"weft_port_width_lanes{item}": "1x60",
        f"weft_port_width_supported_lanes{item}": "4x60",
        f"weft_port_state{item}": "4x60",
        f"infiniband_switch_port_link_downed_total{item}": "0x5 1x5 2x50",
        'weft_suspect_confidence{port="leaf4",peer="",kind="switch down"}': "1x20",
        "weft_monitor_up": "1x30 0x30",
        "weft_sm_up": "1x60",
        "weft_drift_differences": "0x5 1x2 0x53",
        "weft_drift_repaired_total": "0x7 1x53",
    }
    bad = [{"exp_labels": {"guid": "0x1", "port": "1", "severity": "warning"}}]
    both = [*bad, {"exp_labels": good | {"severity": "warning"}}]
    down = [{"exp_labels": {"port": "leaf4", "kind": "switch down", "severity": "critical"}}]
    blind = [{"exp_labels": {"severity": "critical"}}]
    cases = [
        ("10m", "BadCable", both),
        ("40m", "BadCable", []),
        ("10m", "LinkDegraded", bad),
        ("30m", "LinkFlaps", bad),
        ("10m", "Down", down),
        ("10m", "Suspect", []),
        ("40m", "Down", []),
        ("4m", "IsolationDrift", []),
        ("6m", "IsolationDrift", [{"exp_labels": {"severity": "critical"}}]),
        ("40m", "IsolationDrift", []),
    ]
    cases += [("20m", "MonitorBlind", []), ("40m", "MonitorBlind", blind), ("40m", "NoSubnetManager", [])]
    tests = {
        "rule_files": [str(tmp_path / RULES)],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": [
                    {"eval_time": at, "alertname": f"Infiniband{name}", "exp_alerts": alerts}
                    for at, name, alerts in cases
                ],
            }
        ],
    }
    # This test does not check the texts of alerts.
    plain = yaml.safe_load(read(RULES))
    for group in plain["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    (tmp_path / RULES).write_text(yaml.safe_dump(plain))
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    assert "SUCCESS" in promtool(peer, "test", "rules", str(tmp_path / "tests.yml"))


# -- Prometheus -------------------------------------------------------------------------------------------------------


class Prometheus:
    """A running Prometheus that scrapes one address every second. It treats the minutes of the rules as seconds."""

    def __init__(self, program: str, folder: Path, target: str) -> None:
        quick = re.sub(r"\[(12m|1h)\]", "[6s]", read(RULES)).replace("* 720", "* 6").replace("for: 1m", "for: 1s")
        (folder / RULES).write_text(quick)
        place = target.removeprefix("http://").removesuffix("/metrics")
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [RULES],
            "scrape_configs": [{"job_name": "weft", "static_configs": [{"targets": [place]}]}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._command = [program, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=error"]
        self._folder = folder
        self._start()

    def _start(self) -> None:
        """Start at a free port; another process may take it before Prometheus does."""
        while True:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            self.url = f"http://127.0.0.1:{port}"
            with (self._folder / "log").open("wb") as log:
                self.process = subprocess.Popen(
                    [*self._command, f"--web.listen-address=127.0.0.1:{port}"], cwd=self._folder, stdout=log, stderr=log
                )
            wait_until(lambda: self._is_ready() or self.process.poll() is not None, "Prometheus")
            if self.process.poll() is None:
                return
            output = (self._folder / "log").read_text()
            assert "address already in use" in output, output

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready"):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}") as answer:
            return json.load(answer)["data"]

    def values(self, query: str) -> dict[str, float]:
        """Return the values by GUID and port."""
        result = self.ask(f"query?query={urllib.parse.quote(query)}")["result"]
        return {
            f"{item['metric'].get('guid')} {item['metric'].get('port')}": float(item["value"][1]) for item in result
        }

    def firing(self) -> set[tuple[str, str]]:
        alerts = [item for item in self.ask("alerts")["alerts"] if item["state"] == "firing"]
        return {(item["labels"]["alertname"], item["labels"].get("guid", "")) for item in alerts}

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)


def expressions() -> set[str]:
    """Return the expressions of the dashboard and of the recording rules."""
    panels = json.loads(read(DASHBOARD))["panels"]
    rules = [rule for group in yaml.safe_load(read(RULES))["groups"] for rule in group["rules"]]
    requests = {target["expr"].replace("$__rate_interval", "6s") for panel in panels for target in panel["targets"]}
    return requests | {rule["record"] for rule in rules if "record" in rule}


def all_have_series(prometheus: Prometheus, empty: set[str]) -> bool:
    """Remove the expressions that have a result from `empty`; return whether none is left."""
    empty -= {item for item in empty if prometheus.values(item)}
    return not empty


@pytest.mark.slow
def test_prometheus_tells_of_a_bad_cable_and_is_content_after_the_fix(peer, tmp_path):
    """And every expression of the dashboard has a result, in a fabric with faults of every kind."""
    with managed_lab(f"alert{time.monotonic_ns() % 10**9}") as lab:
        lab.load("train=all-to-all:h[1-8]@50%")
        port = lab.fabric.find_port(SICK)
        ends = {f"0x{end.node.guid:016x} {end.number}": end for end in (port, port.peer)}
        alerts = {("InfinibandBadCable", name.split()[0]) for name in ends}
        alerts |= {("InfinibandSuspect", ""), ("InfinibandDown", "")}
        carrier = IbsimCarrier("h2", lab.sockname)
        watch = Watch(Poller(carrier), every_s=0.5, diagnose=diagnose)
        now = time.monotonic
        with closing(carrier), watch, Listener("127.0.0.1:0", lambda: render(watch.latest, now_s=now())) as door:
            prometheus = Prometheus(peer("prometheus"), tmp_path, door.url)
            try:
                wait_until(lambda: prometheus.values("weft_monitor_up"))
                lab.degrade(SICK, 1e-9)
                lab.degrade("h5", drain=0.2)
                lab.degrade("h7", to="1xNDR")
                lab.break_cable("h6")
                lab.degrade("h8", flaps=1200)  # at each flap packets to it are lost until the manager reroutes
                empty = expressions()
                wait_until(lambda: all_have_series(prometheus, empty), lambda: f"series for {empty}")
                wait_until(lambda: alerts <= prometheus.firing(), "the alert")
                lab.fix()
                wait_until(lambda: not prometheus.firing(), lambda: f"{prometheus.firing()}: the end of all alerts")
                messages = prometheus.values("infiniband_switch_port_symbol_error_total")
                true = {name: lab.fabric.counters[end.slot, Column.SYMBOL_ERROR] for name, end in ends.items()}
                assert {name: messages[name] for name in true} == true
                assert prometheus.values("weft_sm_up") == {"None None": 1}
            finally:
                prometheus.stop()


# -- node_exporter ----------------------------------------------------------------------------------------------------

NODE_EXPORTER = """
until [ -s told ]; do  # another process may take the port first
    port=$({python} -c "import socket; print(socket.create_server(('127.0.0.1', 0)).getsockname()[1])")
    {program} --path.sysfs=/sys --collector.disable-defaults --collector.infiniband \\
        --web.listen-address=127.0.0.1:$port 2>log & it=$!
    until grep -q -e 'address=127.0.0.1' -e 'already in use' log; do sleep 0.05; done
    grep -q 'already in use' log && continue
    {python} -c "import urllib.request as u; print(u.urlopen('http://127.0.0.1:$port/metrics').read().decode())" >told
    kill $it
done
cat told
"""


def test_node_exporter_reads_the_counters_of_a_host(lab, peer, tmp_path):
    need_mounts()
    script = NODE_EXPORTER.format(program=peer("prometheus-node-exporter"), python=sys.executable)
    done = lab.run("h3", "sh", "-c", script, sysfs=True, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    messages = dict(re.findall(r'^node_infiniband_(\w+)\{device="mlx5_0",port="1"\} (\S+)$', done.stdout, re.M))
    true = lab.fabric.counters[lab.fabric.find_port("h3/1").slot]
    sent = true[Column.PORT_XMIT_DATA_WORDS] * 4
    assert float(messages["port_data_transmitted_bytes_total"]) == pytest.approx(sent, rel=1e-6)
    assert sent > 1e12  # half of the line for an hour
    assert float(messages["rate_bytes_per_second"]) == 5e10
    assert float(messages["link_downed_total"]) == true[Column.LINK_DOWNED]
    assert float(messages["symbol_error_total"]) == true[Column.SYMBOL_ERROR]


# -- infiniband-diags -------------------------------------------------------------------------------------------------


def test_ibqueryerrors_and_perfquery_say_what_the_exporter_says(lab, poller, peer):
    peer("ibqueryerrors")
    reading = poller.poll()
    messages = render(Latest(every_s=10, reading=reading, read_s=1.0, polls=1), now_s=1.0).decode()
    output = lab.run("h2", "ibqueryerrors", "--details").stdout
    errors = re.findall(r"GUID 0x(\w+) port (\d+): (.*)", output)
    names = {metric.of: metric for metric in PORT_METRICS}
    compared = 0
    for guid, number, counts in errors:
        for name, count in re.findall(r"\[(\w+) == (\d+) ", counts):
            metric = names.get(name)
            if metric is None:
                continue
            sample = rf'_port_{metric.name}\{{guid="0x{int(guid, 16):016x}",port="{number}"\}} (\d+)'
            assert re.search(sample, messages)[1] == count
            compared += 1
    assert compared >= 2  # both ends of the cable that was bad
    port = lab.fabric.find_port(SICK)
    lid = int(reading.ports.lid[reading.ports.fabric.find_port(SICK).slot])
    query = lab.run("h2", "perfquery", "-x", str(lid), str(port.number)).stdout
    displayed = dict(re.findall(r"(\w+):\.*(\d+)", query))
    sample = f'{{guid="0x{port.node.guid:016x}",port="{port.number}"}}'
    for metric in PORT_METRICS:
        if metric.of in displayed and not re.search("Pkts|Data", metric.of):
            assert f"_port_{metric.name}{sample} {displayed[metric.of]}\n" in messages
    assert int(displayed["SymbolErrorCounter"]) > 1e6


def test_a_real_ibsim_is_polled_and_perfquery_agrees(ibsim):
    """ibsim's agents have 64-bit counters for traffic, short ones for errors, and none for QP1Dropped."""
    fabric = weft.load("star:hosts=3")
    sim = ibsim(ibnetdiscover.to_text(fabric))
    with closing(IbsimCarrier("", sim.name)) as carrier:
        assert SubnetManager(carrier, Options()).run(once=True)
    with closing(IbsimCarrier("", sim.name)) as carrier:
        reading = Poller(carrier).poll()
        host = carrier.host
    ports = reading.ports
    assert int(ports.is_polled.sum()) == 6
    assert not ports.is_longest.any()
    recorded = reading.known[ports.is_polled]
    assert recorded[:, [Column.PORT_XMIT_DATA_WORDS, Column.SYMBOL_ERROR, Column.PORT_XMIT_WAIT]].all()
    assert not recorded[:, Column.QP1_DROPPED].any()
    slot = int(np.flatnonzero(ports.is_polled)[0])
    output = sim.run("perfquery", "-x", str(ports.lid[slot]), str(ports.number[slot]), host=host)
    counted = {name: int(count) for name, count in re.findall(r"(\w+):\.*(\d+)", output)}
    assert reading.counters[slot, Column.PORT_MULTICAST_RCV_PKTS] == counted["PortMulticastRcvPkts"]
    assert 0 <= reading.counters[slot, Column.PORT_RCV_PKTS] <= counted["PortRcvPkts"]
