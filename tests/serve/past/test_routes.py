"""The history by REST, on a running lab: facts at a time, changes, differences, and the recorded states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial

import httpx
import pytest
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.lab import control
from weft.lab.own_lab import own_lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.serve import access
from weft.serve.app import create_app
from weft.serve.console.monitor import Backend, FabricMonitor
from weft.serve.ledger import Ledger
from weft.serve.past.recorder import Recorder
from weft.serve.server import Server
from weft.serve.settings import Settings
from weft.serve.store import Store
from weft.tenants.drivers.subnet_manager import ManagerDriver


class Service:
    """A service with a recorder whose polls a test makes."""

    def __init__(self, url: str, tokens: dict[str, str], recorder: Recorder, lab) -> None:
        self.url, self.tokens, self.recorder, self.lab = url, tokens, recorder, lab

    def call(self, path: str, role: str = "read-only") -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[role]}"}
        return httpx.get(f"{self.url}/api/v1/{path}", headers=headers, timeout=PATIENCE_S, trust_env=False)

    def get(self, path: str):
        answer = self.call(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def links(self, path: str):
        """Return the changes of links."""
        return [change for change in self.get(path) if change["kind"] == "link"]

    def record(self) -> float:
        """Record once, and return the time of the state."""
        self.recorder.record()
        return self.recorder.moments.span()[1]

    def record_until(self, state: str, link: int) -> float:
        """Record until the link has a state: the monitor polls every second."""

        def look() -> float:
            at_s = self.record()
            return at_s if self.recorder.moments.at(at_s).links.state[link] == state else 0.0

        return wait_until(look, f"{state} is recorded")

    def link(self, name: str) -> int:
        drawing = self.get("fabric")
        node, _, port = name.rpartition("/")
        at, links = drawing["nodes"]["name"].index(node), drawing["links"]
        ends = zip(links["a"], links["a_port"], links["b"], links["b_port"], strict=True)
        return next(i for i, (a, ap, b, bp) in enumerate(ends) if (at, int(port)) in ((a, ap), (b, bp)))


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Service]:
    place = tmp_path_factory.mktemp("past")
    with ExitStack() as opened:
        lab = opened.enter_context(own_lab(weft.load("fat-tree:hosts=8,radix=4"), f"past-{place.parent.name}"))
        ledger = opened.enter_context(Ledger(Store(f"sqlite:///{place}/ledger.db"), ManagerDriver(lab.manager)))
        tokens = {
            role: ledger.change("test", "token", partial(_add_token, role=role, tenant=tenant))
            for role, tenant in (("read-only", ""), ("tenant", "acme"))
        }
        backend = Backend(
            lambda: closing(IbsimCarrier("", control.ask(lab.entry, "state")["sockname"])),
            lab.entry,
        )
        monitor = opened.enter_context(FabricMonitor(backend))
        recorder = Recorder(monitor, f"sqlite:///{place}/past.db")
        opened.callback(recorder.close)
        app = create_app(Settings(), ledger, None, None, monitor, recorder)
        server = opened.enter_context(Server(app, Settings()))
        opened.callback(monitor.events.close)
        yield Service(server.url, tokens, recorder, lab)


def _add_token(draft, *, role: str, tenant: str) -> str:
    return access.add_token(draft, role, access.Role(role), tenant)


def test_before_the_first_poll_there_is_no_history(service):
    for path in ("facts", "changes", "diff?from=0", "past/state?at=1"):
        answer = service.call(path)
        assert (answer.status_code, "no poll yet" in answer.json()["detail"]) == (404, True), path
    assert service.get("past") == {"is_recorded": True, "first": None, "last": None, "events": []}


def test_the_fabric_of_a_moment_is_shown_after_it_has_changed(service):
    link = service.link("leaf1/3")
    well_s = service.record_until("up", link)
    control.ask(service.lab.entry, "break", name="leaf1/3")
    broken_s = service.record_until("down", link)
    control.ask(service.lab.entry, "fix", name="leaf1/3")
    mended_s = service.record_until("up", link)

    states = {at_s: service.get(f"past/state?at={at_s}") for at_s in (well_s, broken_s, mended_s)}
    assert [state["links"]["state"][link] for state in states.values()] == ["up", "down", "up"]
    assert service.get(f"past/fabrics/{states[broken_s]['revision']}") == service.get("fabric")
    assert any("leaf1/3" in end for suspect in states[broken_s]["suspects"] for end in suspect["link"])
    past = service.get("past")
    assert past["first"] <= well_s < mended_s <= past["last"]
    lines = [(event["kind"], event["text"].split(" is ")[-1]) for event in past["events"]]
    assert lines[0] == ("record", "recording begins")
    assert ("link", "down") in lines
    assert lines.index(("link", "down")) < lines.index(("link", "up again"))

    facts = {(fact["kind"], fact["name"]) for fact in service.get(f"facts?at={broken_s}&name=leaf1&kind=link")}
    assert ("link", "leaf1/1") in facts
    assert ("link", "leaf1/3") not in facts
    now = {fact["name"]: fact["value"] for fact in service.get("facts?name=leaf1&kind=link")}
    changes = [(change["before"], change["after"]) for change in service.links("changes?name=leaf1/3")]
    assert changes == [(None, now["leaf1/3"]), (now["leaf1/3"], None)]  # newest first
    difference = {change["name"] for change in service.links(f"diff?from={well_s}&to={broken_s}")}
    assert "leaf1/3" in difference
    assert len(difference) == 2  # both ends
    assert not service.links(f"diff?from={well_s}")


def test_changes_are_limited_to_a_range_of_time(service):
    times_s = {change["t"] for change in service.get("changes?name=leaf1/3")}
    middle_s = (min(times_s) + max(times_s)) / 2
    assert min(times_s) < middle_s < max(times_s)
    before, after = (
        {change["t"] for change in service.get(f"changes?name=leaf1/3&{side}={middle_s}")}
        for side in ("until", "since")
    )
    assert before == {at_s for at_s in times_s if at_s <= middle_s}
    assert after == times_s - before
    assert len(service.get("changes?limit=1")) == 1


def test_requests_that_cannot_be_answered_say_why(service):
    span = service.recorder.moments.span()
    for path, status, word in (
        (f"past/state?at={span[0] - 1}", 404, "no state was recorded"),
        ("past/fabrics/0123", 404, "no drawing 0123"),
        ("past/state", 422, "at"),
        ("past/state?at=-5", 422, "at"),
        ("diff", 422, "from"),
    ):
        answer = service.call(path)
        assert answer.status_code == status, path
        assert word in answer.json()["detail"], path
    assert service.call("facts", "tenant").status_code == 403
