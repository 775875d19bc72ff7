"""Weft's subnet manager and OpenSM in one subnet: master and standby, handover and takeover.

Each of two scenarios runs once; after every step the tests check sminfo, LIDs, port states, and the switches' tables.
OpenSM runs on a host through weft's own preload, weft's subnet manager over ibsim's sockets.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.ids import Gid
from weft.lab import preload
from weft.lab.lab import Lab
from weft.mad.carrier import Address, ask
from weft.mad.ibsim_client import IbsimCarrier
from weft.routing.check import check
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo, PortState
from weft.wire.sa import SaAttribute, SaMad, ServiceRecord
from weft.wire.sa_query import component_mask

pytestmark = pytest.mark.interop

_SPEC = importlib.util.spec_from_file_location("interop_managers", Path(__file__).with_name("managers.py"))
managers = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = managers
_SPEC.loader.exec_module(managers)

_NUMBER = itertools.count()
SPEC = "fat-tree:hosts=16,radix=8,speed=HDR"
SERVICE = 0x7765_6674
OPTIONS = "sminfo_polling_timeout {}\npolling_retry_number {}\nsweep_interval 0\n"


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The state of the subnet after a step of a scenario."""

    master: str  # the host of the master by sminfo
    lids: tuple[int, ...]
    states: set[PortState]
    missing: int  # pairs that the tables do not connect
    standby: str  # the last state in the other manager's log


class Story:
    """A lab in which subnet managers start and die."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.fabric = folder, weft.load(SPEC)
        self.lab = Lab(self.fabric, f"osm-{next(_NUMBER)}-{os.getpid()}")
        self.lab.__enter__()
        self.opensms, self.wefts = {}, {}
        (folder / "opensm.conf").write_text(OPTIONS.format(300, 2))
        (folder / "weft.conf").write_text(OPTIONS.format(500, 4))

    def opensm(self, host: str, priority: int) -> None:
        place = self.folder / f"{host}-{next(_NUMBER)}"
        place.mkdir()
        words = ["opensm", "-f", str(place / "log"), "-D", "0x83", "-d", "2", "-F", str(self.folder / "opensm.conf")]
        caches = {"OSM_CACHE_DIR": str(place), "OSM_TMP_DIR": str(place)}
        process = self.lab.start(host, *words, "-p", str(priority), folder=place, **caches)
        self.opensms[host] = (process, place / "log")

    def weft(self, host: str, priority: int) -> None:
        words = ["--on", "ibsim", "--ibsim", self.lab.sockname, "--at", host, "-p", str(priority)]
        self.wefts[host] = managers.Manager(self.folder / host, *words, "-F", str(self.folder / "weft.conf"))

    def kill(self, host: str) -> None:
        """Kill a manager with SIGKILL."""
        process = self.opensms.pop(host)[0] if host in self.opensms else self.wefts.pop(host).process
        process.kill()
        process.wait()

    def wait_for(self, what: Callable[[], bool], why: str) -> None:
        def logs() -> str:
            output = [log.read_text(errors="replace")[-1500:] for _, log in self.opensms.values()]
            return "\n".join([*output, *(item.log()[-1500:] for item in self.wefts.values()), why])

        wait_until(what, logs)

    def master(self) -> str:
        """Return the host of the master by sminfo at h5; empty if sminfo finds none."""
        done = self.lab.run("h5", "sminfo", "-t", "200", folder=self.folder, timeout_s=PATIENCE_S)
        result = re.search(r"sm lid (\d+) .*SMINFO_MASTER", done.stdout)
        lids = {int(host.lid): host.name for host in self.fabric.hcas}
        return lids.get(int(result[1]), "") if result else ""

    def says(self, host: str) -> str:
        """Return the last state that a manager reported."""
        if host in self.wefts:
            status = self.wefts[host].status
            return "" if status is None else status.sm_state
        log = self.opensms[host][1]
        result = re.findall(r"Entering (\w+) state", log.read_text(errors="replace") if log.exists() else "")
        return result[-1].lower() if result else ""

    def is_up(self, host: str) -> bool:
        """Return whether the master on a host has swept since it became master."""
        if host in self.wefts:
            status = self.wefts[host].status
            return status is not None and status.sweep is not None
        text = self.opensms[host][1].read_text(errors="replace")
        return "SUBNET UP" in text[text.rfind("Entering MASTER") :]

    def look(self, master: str, standby: str = "") -> Moment:
        """Wait for this master and standby, and for the master's sweep; return the state of the subnet."""
        self.wait_for(lambda: self.master() == master, f"{master} master for sminfo")
        if standby:
            self.wait_for(lambda: self.says(standby) == "standby", f"{standby} in STANDBY")
        self.wait_for(lambda: self.is_up(master), f"SUBNET UP by {master}")
        devices = self.lab.subnet.devices
        up = [slot for slot in range(len(devices.cable)) if devices.peer(slot) >= 0]
        return Moment(
            master=self.master(),
            lids=tuple(self.fabric.tables.lid.tolist()),
            states={PortState(PortInfo.port_state.get(devices.info(slot))) for slot in up},
            missing=check(self.lab.fabric_now(), hosts_only=True).missing,
            standby=self.says(standby) if standby else "",
        )

    def ask_service(self, method: Method) -> int | None:
        """Register a permanent service, or query it, from h7; return the status of the answer."""
        gid = Gid.LINK_LOCAL_PREFIX << 64 | int(self.fabric["h7/1"].guid)
        record = ServiceRecord(service_id=SERVICE, service_gid=gid, service_p_key=0xFFFF, service_lease=0xFFFF_FFFF)
        names = ["service_id", "service_gid", "service_p_key", "service_lease"][: 4 if method == Method.SET else 1]
        mask = component_mask(ServiceRecord, *names)
        mad = SaMad.pack(method=method, attribute_id=SaAttribute.SERVICE_RECORD, component_mask=mask, data=record.raw)
        slot = self.fabric["h7/1"].slot
        with closing(IbsimCarrier("h7", self.lab.sockname)) as carrier:
            lid = PortInfo.master_sm_lid.get(self.lab.subnet.devices.info(slot))
            answer = ask(carrier, mad, Address(lid=lid), timeout_ms=1000)
        return None if answer is None else SaMad.status.get(answer)

    def end(self) -> None:
        for host in [*self.opensms, *self.wefts]:
            self.kill(host)
        self.lab.stop()


@pytest.fixture(scope="module")
def story(peer, tmp_path_factory) -> Iterator[Callable[[str], Story]]:
    peer("opensm")
    peer("sminfo")
    if preload.library() is None:
        pytest.skip("there is no C compiler for weft's preload: make peers")
    messages: list[Story] = []

    def begin(name: str) -> Story:
        messages.append(Story(tmp_path_factory.mktemp(name)))
        return messages[-1]

    yield begin
    for item in messages:
        item.end()


# -- the master dies, the standby takes over --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deaths(story) -> dict[str, Moment]:
    """The states after: OpenSM is master, weft standby; OpenSM dies; OpenSM starts again, below weft; weft dies."""
    item, moments = story("deaths"), {}
    item.opensm("h2", 8)
    item.look("h2")
    item.weft("h1", 5)
    moments["weft stands by"] = item.look("h2", "h1")
    assert item.ask_service(Method.SET) == 0
    item.wait_for(lambda: item.wefts["h1"].status.services == 1, "a copy of the service")
    item.kill("h2")
    moments["weft takes over"] = item.look("h1")
    assert item.ask_service(Method.GET) == 0, "weft does not know the service that OpenSM had"
    item.opensm("h2", 3)
    moments["opensm stands by"] = item.look("h1", "h2")
    item.kill("h1")
    moments["opensm takes over"] = item.look("h2")
    return moments


@pytest.mark.parametrize(
    ("moment", "master", "standby"),
    [
        ("weft stands by", "h2", "standby"),
        ("weft takes over", "h1", ""),
        ("opensm stands by", "h1", "standby"),
        ("opensm takes over", "h2", ""),
    ],
)
def test_the_lower_one_stands_by_and_takes_over_when_the_master_is_killed(deaths, moment, master, standby):
    assert (deaths[moment].master, deaths[moment].standby) == (master, standby)


def test_with_every_master_the_subnet_is_whole_and_no_lid_changes(deaths):
    before = deaths["weft stands by"].lids
    assert len(set(before)) > len(weft.load(SPEC).hcas)
    for name, moment in deaths.items():
        assert (name, moment.states, moment.missing) == (name, {PortState.ACTIVE}, 0)
        assert (name, moment.lids) == (name, before)


# -- a manager of higher priority starts ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def handovers(story) -> dict[str, Moment]:
    """The states after the starts of OpenSM, of weft with higher priority, and of another OpenSM above both."""
    item, moments = story("handovers"), {}
    item.opensm("h2", 3)
    moments["opensm alone"] = item.look("h2")
    item.weft("h1", 10)
    moments["to weft"] = item.look("h1", "h2")
    item.opensm("h3", 14)
    moments["to opensm"] = item.look("h3", "h1")
    return moments


@pytest.mark.parametrize(("moment", "master"), [("to weft", "h1"), ("to opensm", "h3")])
def test_the_master_hands_over_to_a_higher_one_that_appears(handovers, moment, master):
    assert (handovers[moment].master, handovers[moment].standby) == (master, "standby")


def test_a_handover_changes_no_lid_and_leaves_the_subnet_whole(handovers):
    before = np.array(handovers["opensm alone"].lids)
    for name, moment in handovers.items():
        assert (np.array(moment.lids) == before).all(), name
        assert (name, moment.states, moment.missing) == (name, {PortState.ACTIVE}, 0)
