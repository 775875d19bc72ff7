"""The console's routes on a running lab: drawings, changes, and permissions."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from urllib.parse import quote

import httpx
import pytest
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.lab import control
from weft.lab.own_lab import own_lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.serve import access
from weft.serve.app import create_app
from weft.serve.console import monitor as seeing
from weft.serve.console.monitor import Backend, FabricMonitor
from weft.serve.ledger import Ledger
from weft.serve.server import Server
from weft.serve.settings import Settings
from weft.serve.store import Store
from weft.serve.violation_watcher import ViolationWatcher
from weft.tenants.drivers.subnet_manager import ManagerDriver


class Console:
    def __init__(self, url: str, tokens: dict[str, str], monitor: FabricMonitor) -> None:
        self.url, self.tokens, self.monitor = url, tokens, monitor
        self._client = httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False)

    def __call__(self, method: str, path: str, role: str = "operator", **more: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[role]}", **more.pop("headers", {})}  # type: ignore[dict-item]
        return self._client.request(method, f"/api/v1/{path}", headers=headers, **more)  # type: ignore[arg-type]

    def close(self) -> None:
        self._client.close()

    def get(self, path: str) -> dict[str, object]:
        answer = self("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def order(self, **words: object) -> list[str]:
        answer = self("POST", "cables", json=words)
        assert answer.status_code == 200, answer.text
        return answer.json()["ports"]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    place = tmp_path_factory.mktemp("console")
    with ExitStack() as opened:
        lab = opened.enter_context(own_lab(weft.load("fat-tree:hosts=16,radix=8"), f"console-{place.parent.name}"))
        ledger = opened.enter_context(Ledger(Store(f"sqlite:///{place}/ledger.db"), ManagerDriver(lab.manager)))
        roles = {"operator": "", "read-only": "", "tenant": "acme"}
        tokens = {
            role: ledger.change(
                "test",
                "token",
                lambda draft, role=role, whose=whose: access.add_token(draft, role, access.Role(role), whose),
            )
            for role, whose in roles.items()
        }
        backend = Backend(
            lambda: closing(IbsimCarrier("", control.ask(lab.entry, "state")["sockname"])),
            lab.entry,
        )
        monitor = opened.enter_context(FabricMonitor(backend))
        watcher = opened.enter_context(
            ViolationWatcher(backend.attach, lambda: ledger.desired().allocation(), tell=monitor.log)
        )
        settings = Settings()
        server = opened.enter_context(Server(create_app(settings, ledger, None, watcher, monitor), settings))
        opened.callback(monitor.events.close)
        wait_until(lambda: not watcher.trouble, lambda: watcher.trouble)
        console = Console(server.url, tokens, monitor)
        opened.callback(console.close)
        yield console


def _link(shown: dict, name: str) -> int:
    node, _, port = name.rpartition("/")
    at, links = shown["nodes"]["name"].index(node), shown["links"]
    ends = zip(links["a"], links["a_port"], links["b"], links["b_port"], strict=True)
    return next(i for i, (a, ap, b, bp) in enumerate(ends) if (at, int(port)) in ((a, ap), (b, bp)))


def test_link_states_are_in_the_order_of_the_drawing(console):
    answer = console("GET", "fabric")
    output, now = answer.json(), console.get("state")
    assert len(output["nodes"]["name"]) == 22
    assert len(output["links"]["a"]) == 32 == len(now["links"]["state"]) == len(now["links"]["load"])
    assert set(now["links"]["state"]) == {"up"}
    assert now["revision"] == output["revision"]
    assert output["spec"] == "fat-tree:hosts=16,radix=8"
    assert now["sm"]["host"] == "h1"
    assert now["sm"]["state"] == "master"
    assert console("GET", "fabric", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304


def test_a_manager_on_an_adapter_of_a_server_is_not_its_own_standby(tmp_path):
    with own_lab(weft.load("star:hosts=2,server=dgx-h100"), f"standby-{tmp_path.parent.name}") as lab:
        sockname = control.ask(lab.entry, "state")["sockname"]
        backend = Backend(lambda: closing(IbsimCarrier("", sockname)), lab.entry)
        with FabricMonitor(backend) as monitor:
            alone = monitor.state().sm
            assert alone is not None
            assert (alone.host, alone.standby) == ("dgx1/mlx5_0", [])
            second = IbsimCarrier("dgx2/mlx5_0", sockname)
            with closing(second):
                second.set_is_sm(True)
                both = monitor.state().sm
            assert both is not None
            assert (both.host, both.standby) == ("dgx1/mlx5_0", ["dgx2/mlx5_0"])


def test_a_disconnected_cable_stays_in_the_drawing_and_is_logged(console):
    output = console.get("fabric")
    link = _link(output, "leaf1/5")
    heard: list[tuple[str, dict]] = []
    with httpx.Client(base_url=console.url, timeout=PATIENCE_S, trust_env=False) as client:
        headers = {"Authorization": f"Bearer {console.tokens['read-only']}"}
        with client.stream("GET", "/api/v1/live", headers=headers) as stream:
            lines = stream.iter_lines()

            def follow_until(*, is_down: bool) -> None:
                for line in lines:
                    if line.startswith("event: "):
                        heard.append((line[7:], json.loads(next(lines)[6:])))
                        kind, messages = heard[-1]
                        if kind == "state" and (messages["links"]["state"][link] == "down") is is_down:
                            return

            follow_until(is_down=False)
            assert console.order(name="leaf1/5", do="break") == ["leaf1/5"]
            follow_until(is_down=True)
            console.order(name="leaf1/5", do="fix")
            follow_until(is_down=False)
    log = [(item["kind"], item["text"]) for kind, item in heard if kind == "log"]
    assert ("cable", "operator: break leaf1/5") in log
    assert ("link", "leaf1/5 - spine1/1 is down") in log
    suspects = [item["kind"] for kind, messages in heard if kind == "state" for item in messages["suspects"]]
    assert "link down" in suspects
    assert ("link", "leaf1/5 - spine1/1 is up again") in log
    assert any(kind == "trap" and "trap 128 from leaf1" in text for kind, text in log)
    assert console.get("fabric")["revision"] == output["revision"]
    wait_until(lambda: not console.monitor.events.has_listeners, "that a browser that went away is forgotten")


def test_a_job_shows_its_rate_and_loads_its_links(console):
    answer = console("PUT", "load", json={"jobs": ["train=ring:h[1-8]@50%"], "speed": 20})
    assert answer.status_code == 200, answer.text
    h1, h9 = (_link(console.get("fabric"), name) for name in ("h1/1", "h9/1"))

    def state_under_load() -> dict | None:
        state = console.get("state")
        load = state["links"]["load"]
        return state if (load[h1] or 0) > 0.3 and load[h9] is not None else None  # None: polled once so far

    now = wait_until(state_under_load, "load")
    assert now["links"]["load"][h1] < 5  # a lab's clock ticks, and a poll may see a tick more; it is 20 times as fast
    assert now["links"]["load"][h9] < 0.01
    assert [job["name"] for job in now["jobs"]] == ["train"]
    node = console.get("nodes/h1")
    (port,) = node["ports"]
    assert port["peer"] == "leaf1/1"
    assert port["pkeys"] == ["0xffff"]
    assert 1e9 < port["rates"]["port_xmit_data_words"] < 60e9
    series = console.get("history?port=h1/1&counter=port_xmit_data_words&seconds=60")
    assert 1e9 < series["v"][-1] < 60e9
    assert console("DELETE", "load").status_code == 204
    assert console.get("load")["jobs"] == []


def test_a_bad_cable_becomes_a_suspect(console):
    console.order(name="leaf2/6", do="degrade", ber=1e-8)
    console("PUT", "load", json={"jobs": ["train=all-to-all@50%"]})

    def suspect() -> dict:
        return next((item for item in console.get("diagnosis")["suspects"] if "leaf2/6" in item["link"]), {})

    with httpx.Client(base_url=console.url, timeout=PATIENCE_S, trust_env=False) as client:
        headers = {"Authorization": f"Bearer {console.tokens['read-only']}"}
        with client.stream("GET", "/api/v1/live", headers=headers):  # it polls the lab while a client listens
            result = wait_until(lambda: (one := suspect()).get("impact") and one, "suspicion")
    assert "Job train uses it" in result["impact"]
    assert result["kind"] == "bad cable"
    assert result["evidence"]
    state = console.get("state")
    assert state["links"]["state"][_link(console.get("fabric"), "leaf2/6")] == "bad"
    assert console.order(name="leaf2/6", do="fix") == ["leaf2/6"]
    console("DELETE", "load")


def test_an_alarm_is_acknowledged_with_name_and_reason_and_withdrawn(console):
    console.order(name="leaf3/5", do="break")

    def alarm() -> dict:
        return next((item for item in console.get("alarms") if "leaf3/5" in item["link"]), {})

    raised = wait_until(alarm, "an alarm")
    assert (raised["id"], raised["acknowledged"]) == ("link down: leaf3/5 - spine1/5", None)
    path, request = f"acknowledgements/{quote(raised['id'])}", {"name": "Ann", "reason": "being replaced", "days": 2}
    assert console("PUT", path, "read-only", json=request).status_code == 403
    before_s = time.time()
    stored = console("PUT", path, json=request)
    assert stored.status_code == 200, stored.text
    now = alarm()["acknowledged"]
    assert now == stored.json() == console.get("acknowledgements")[0]
    assert [now[key] for key in ("name", "reason", "caller")] == ["Ann", "being replaced", "operator"]
    assert before_s <= now["at_s"] <= time.time()
    assert now["until_s"] - now["at_s"] == pytest.approx(2 * 86_400)
    assert next(item for item in console.get("state")["suspects"] if item["id"] == raised["id"])["acknowledged"] == now
    assert [item["acknowledged"] for item in console.get("diagnosis")["suspects"] if item["id"] == raised["id"]] == [
        now
    ]
    console.order(name="leaf3/5", do="fix")
    assert console("DELETE", path).status_code == 204
    assert console("DELETE", path).status_code == 404
    assert console.get("acknowledgements") == []
    lines = [
        (line["actor"], line["what"]) for line in console("GET", "audit").json() if "acknowledgements" in line["what"]
    ]
    assert any(actor == "operator" and "PUT" in what and '"reason":"being replaced"' in what for actor, what in lines)
    assert any(actor == "operator" and "DELETE" in what for actor, what in lines)


@pytest.mark.parametrize(
    ("alarm", "request_", "status", "word"),
    [
        ("link down: leaf9/9 - spine9/9", {"name": "Ann", "reason": "no such alarm"}, 404, "GET /alarms"),
        ("x", {"name": "Ann"}, 422, "reason"),
        ("x", {"name": "", "reason": "r"}, 422, "name"),
        ("x", {"name": "Ann", "reason": "r", "days": 366}, 422, "days"),
        ("x", {"name": "Ann", "reason": "r", "days": 0}, 422, "days"),
    ],
)
def test_invalid_acknowledgements_are_refused(console, alarm, request_, status, word):
    answer = console("PUT", f"acknowledgements/{quote(alarm)}", json=request_)
    assert answer.status_code == status
    assert word in answer.json()["detail"]


def test_a_capture_of_a_cable_is_a_file_that_tshark_reads(console, tmp_path):
    refused = console("POST", "captures", "read-only", json={"port": "leaf1/5"})
    assert refused.status_code == 403
    answers = []
    capture = threading.Thread(
        target=lambda: answers.append(console("POST", "captures", json={"port": "h16/1", "seconds": 20, "packets": 12}))
    )
    capture.start()
    while capture.is_alive():  # reading the far end sends MADs over its cable
        assert console("GET", "cables?port=h16/1").status_code == 200
    (answer,) = answers
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == 'attachment; filename="h16-1.pcapng"'
    assert answer.content[:4] == bytes.fromhex("0a0d0d0a")  # the block type of pcapng
    if shutil.which("tshark"):
        file = tmp_path / "link.pcapng"
        file.write_bytes(answer.content)
        command = ["tshark", "-r", str(file), "-T", "fields", "-e", "frame.interface_name", "-e", "_ws.malformed"]
        lines = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        ).stdout.splitlines()
        assert len(lines) == 12
        assert {line.strip() for line in lines} == {"h16/1", "leaf4/4"}


@pytest.mark.parametrize(
    ("order", "word"),
    [
        ({"port": "leaf1"}, "name the port of one"),
        ({"port": "leaf1/99"}, "leaf1/99"),
        ({"port": "leaf1/5", "seconds": 31}, "seconds"),
        ({"port": "leaf1/5", "packets": 0}, "packets"),
        ({"seconds": 3}, "port"),
    ],
)
def test_invalid_captures_are_refused(console, order, word):
    answer = console("POST", "captures", json=order)
    assert answer.status_code == 422
    assert word in answer.json()["detail"]


def test_a_port_is_switched_off_and_on(console):
    link = _link(console.get("fabric"), "leaf2/5")
    order = {"port": "leaf2/5", "do": "disable"}
    assert console("POST", "portstate", "read-only", json=order).status_code == 403
    assert console("POST", "portstate", json=order).status_code == 204

    def state() -> str:
        return console.get("state")["links"]["state"][link]

    wait_until(lambda: state() == "down", "down")
    assert {port["state"] for port in console.get("nodes/leaf2")["ports"] if port["number"] == 5} == {"Down"}
    assert control.ask(console.monitor.lab(), "state")["broken"] == []  # the cable is in
    assert console("POST", "portstate", json=order | {"do": "enable"}).status_code == 204
    wait_until(lambda: state() == "up", "up")
    assert any('"port":"leaf2/5"' in line["what"].replace(" ", "") for line in console("GET", "audit").json())


@pytest.mark.parametrize(
    ("port", "status", "word"),
    [
        ("h3/1", 422, "switch's end"),
        ("leaf2/0", 422, "switch's end"),
        ("leaf2/99", 422, "leaf2/99"),
        ("leaf1/1", 409, "this service"),  # its monitor is attached to h1
    ],
)
def test_ports_that_cannot_be_switched_off_are_refused(console, port, status, word):
    answer = console("POST", "portstate", json={"port": port, "do": "disable"})
    assert (answer.status_code, word in answer.json()["detail"]) == (status, True), answer.text


def test_counters_are_cleared_at_a_port_a_node_and_everywhere(console):
    def packets(node: str, number: int) -> int:
        (port,) = (port for port in console.get(f"nodes/{node}")["ports"] if port["number"] == number)
        return port["counters"]["port_xmit_pkts"]

    def count_on() -> None:
        console("PUT", "load", json={"jobs": ["train=all-to-all@50%"], "speed": 1})
        wait_until(lambda: min(packets("leaf2", 1), packets("leaf3", 1), packets("h9", 1)) > 10_000, "packets")
        console("DELETE", "load")

    for name, cleared, others in (
        ("leaf2/1", [("leaf2", 1)], [("leaf3", 1), ("h9", 1)]),
        ("leaf2", [("leaf2", 1), ("leaf2", 2)], [("leaf3", 1)]),
        ("", [("leaf2", 1), ("leaf3", 1), ("h9", 1)], []),
    ):
        count_on()
        assert console("POST", "counters/clear", "read-only", json={"name": name}).status_code == 403
        assert console("POST", "counters/clear", json={"name": name}).status_code == 204
        wait_until(lambda ends=cleared: all(packets(*end) < 10_000 for end in ends), f"zeros at {name}")
        assert all(packets(*end) > 10_000 for end in others), name
    assert console("POST", "counters/clear", json={"name": "nosuch"}).status_code == 422


def test_a_service_that_does_not_record_says_so(console):
    assert console.get("past") == {"is_recorded": False, "first": None, "last": None, "events": []}
    answer = console("GET", "changes")
    assert answer.status_code == 409
    assert "--no-record" in answer.json()["detail"]


def test_a_what_if_is_answered_from_a_model_and_changes_nothing(console):
    before = console.get("state")["links"]["state"]
    answer = console("POST", "whatif", "read-only", json={"faults": ["dead:spine1"], "jobs": ["train=all-to-all@90%"]})
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert (result["safe"], result["cut_off"], result["hosts"]) == (True, [], 16)
    assert result["changed_entries"] > 0
    assert result["alarms"] == ["switch down: spine1"]
    (job,) = result["jobs"]
    assert job["before_gbit_s"] > job["after_gbit_s"] > 0
    assert job["loss"] == pytest.approx(1 - job["after_gbit_s"] / job["before_gbit_s"])
    unsafe = console("POST", "whatif", "read-only", json={"faults": ["dead:leaf1"]}).json()
    assert (unsafe["safe"], unsafe["cut_off_hosts"]) == (False, 4)
    assert unsafe["cut_off"] == ["h1/1", "h2/1", "h3/1", "h4/1"]
    assert console("POST", "whatif", json={"routing_engine": "up-down"}).json()["engine"] == "up-down"
    partitions = {"tenant": {"one": {"hosts": ["h2"]}, "two": {"hosts": ["h3"]}}}
    split = console("POST", "whatif", json={"tenants": partitions})
    assert split.status_code == 200, split.text
    assert split.json()["lost_pairs"] > 0
    assert console.get("state")["links"]["state"] == before
    assert console.get("partitions") == []


@pytest.mark.parametrize(
    ("order", "word"),
    [
        ({}, "nothing changes"),
        ({"faults": ["dead:spine9"]}, "spine9"),
        ({"faults": ["burn:leaf1"]}, "burn"),
        ({"routing_engine": "nosuch"}, "nosuch"),
        ({"add_servers": -1}, "add_servers"),
        ({"faults": ["dead:spine1"], "colour": "red"}, "colour"),
    ],
)
def test_invalid_what_ifs_are_refused(console, order, word):
    answer = console("POST", "whatif", json=order)
    assert answer.status_code == 422
    assert word in answer.json()["detail"]


def test_the_path_between_two_hosts_follows_the_forwarding_tables(console):
    way = console.get("routes?from=h1&to=h16")
    assert way["reaches"]
    nodes = [hop["node"] for hop in way["hops"]]
    assert (nodes[:2], nodes[-2:]) == (["h1", "leaf1"], ["leaf4", "h16"])
    assert way["pkey"] == "0xffff"
    assert all(hop["vl"] == 0 for hop in way["hops"][:-1])
    assert console("GET", "routes?from=h1&to=h99").status_code == 422


@pytest.mark.parametrize(
    ("order", "word"),
    [
        ({"name": "leaf1/99", "do": "break"}, "leaf1/99"),
        ({"name": "leaf1/5", "do": "burn"}, "burn"),
        ({"name": "leaf1/5", "do": "degrade"}, "ber"),
        ({"name": "leaf1/5", "do": "break", "ber": 1e-9}, "degrade"),
        ({"name": "leaf1/5", "do": "degrade", "ber": 7}, "bit error rate"),
        ({"name": "leaf1/5", "do": "degrade", "colour": "red"}, "colour"),
    ],
)
def test_invalid_cable_orders_are_refused(console, order, word):
    answer = console("POST", "cables", json=order)
    assert answer.status_code == 422
    assert word in answer.json()["detail"]
    state = control.ask(console.monitor.lab(), "state")
    assert state["broken"] == state["degraded"] == []


def test_roles_decide_who_may_see_and_change(console):
    for role, sees in (("read-only", 200), ("tenant", 403)):
        assert console("GET", "state", role).status_code == sees
        assert console("POST", "cables", role, json={"name": "leaf1/5", "do": "break"}).status_code == 403
        assert console("PUT", "load", role, json={"jobs": []}).status_code == 403
        assert console("POST", "runs", role, json={"command": "compare", "spec": "superpod:su=1"}).status_code == 403
    console.order(name="leaf1/5", do="fix")  # notes are written with the next change
    audit = [line["result"] for line in console("GET", "audit").json()]
    assert sum("refused" in result for result in audit) >= 6


def test_a_run_is_started_and_ended_by_rest(console):
    assert console("POST", "runs", json={"command": "compare", "spec": "/etc/passwd"}).status_code == 422
    assert console("POST", "runs", json={"command": "rm", "spec": "superpod:su=1"}).status_code == 422
    started = console("POST", "runs", json={"command": "train", "model": "llama3-8b", "spec": "superpod:su=1"})
    assert started.status_code == 202
    number = started.json()["id"]
    assert console("DELETE", f"runs/{number}").status_code == 204
    assert console.get(f"runs/{number}")["state"] == "ended"
    assert console("GET", f"runs/{number}/report").status_code == 404


def test_prometheus_is_served_with_a_token_and_the_page_without(console):
    messages = httpx.get(f"{console.url}/metrics", headers={"Authorization": f"Bearer {console.tokens['read-only']}"})
    assert "infiniband_switch_port_symbol_error_total{" in messages.text
    assert "weft_tenants " in messages.text
    assert httpx.get(f"{console.url}/metrics").status_code == 401
    page = httpx.get(f"{console.url}/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "http://" not in page.text.replace("http://www.w3.org", "")


def test_polling_stops_without_clients(console, monkeypatch):
    console.get("state")
    assert console.monitor._watch is not None
    monkeypatch.setattr(seeing, "_IDLE_S", 0.0)
    wait_until(lambda: console.monitor._watch is None, "sleep")
    monkeypatch.undo()
    assert console.get("state")["links"]["state"]
