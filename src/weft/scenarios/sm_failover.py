"""Subnet manager failover: what continues, what stops, and for how long?

    h1    weft sm, priority 10: the master, killed with SIGKILL        leaf1 .. leaf4, spines
    h16   weft sm, priority 5: the standby, which polls the master at every interval

All the while hosts send each other messages by LID, which need only the forwarding tables in the switches, and one host
queries the subnet administrator, part of the subnet manager, for paths: the first step of every new connection. These
are processes, sockets and real seconds, not simulated ones.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from weft.draw.chart import titled_chart
from weft.errors import ConfigError, SubnetError
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.ids import Gid
from weft.lab.lab import Lab
from weft.mad.administrator import administrator, ask_administrator
from weft.mad.carrier import Address
from weft.mad.ibsim_client import IbsimCarrier
from weft.routing.check import check
from weft.scenarios.finding import COLOURS, Finding
from weft.scenarios.probe import Probe, run_probes
from weft.sm.status import Status, read_status
from weft.wire.format import Format
from weft.wire.mad import MadHeader, Method, MgmtClass, PlainMad
from weft.wire.perf import PerfAttribute, PortSelect
from weft.wire.sa import JoinState, MCMemberRecord, PathRecord, SaAttribute, SaMad, ServiceRecord
from weft.wire.sa_query import component_mask
from weft.wire.smp import SMInfo, Smp, SmpAttribute, SMState

CLAIM = (
    "If the SM goes down, traffic continues on existing routes but no new connections can be established. You always "
    "run a standby SM on a second device."
)
SOURCE = "InfiniBand Is Not Magic. Here's What It Actually Does."
SPEC = "fat-tree:hosts=16,radix=8"
MASTER, STANDBY = "h1", "h16"
SENDERS = ("h2", "h6", "h10", "h14")  # a leaf each
NEWCOMER = "h7"  # queries paths
MEMBERS = ("h11", "h3")  # members of a group; the first has a service too
OPENSM_S = 52.9  # OpenSM 3.3.23 with its defaults, 10 s and 4 retries: from kill -9 until the standby logged MASTER
SERVICE_ID, MGID = 0x7765_6674, 0xFF12 << 112 | 0x77
NO_EXPIRY = 0xFFFF_FFFF
PATH_TICKS, BIN_S = 4, 0.1
BEFORE_S, AFTER_S = 0.5, 0.5  # examined before and after the outage
TIMEOUT_S = 60.0
PHASES = ("before", "outage", "after")


def run(
    *,
    polling_ms: Annotated[int, "Milliseconds between two polls of the master by the standby.", "--polling"] = 500,
    retries: Annotated[int, "Intervals without a response after which the master counts as dead."] = 4,
    seed: Annotated[int, "Random seed for the order in which hosts send."] = 1,
) -> Finding:
    """Kill the master and measure the outage until the standby has taken over."""
    if not 10 <= polling_ms <= 10_000:
        raise ConfigError(
            f"--polling must be 10 to 10,000 ms, got {polling_ms} (OpenSM's default is 10,000, weft's 500)"
        )
    if not 1 <= retries <= 10:
        raise ConfigError(f"--retries must be 1 to 10, got {retries} (the default of OpenSM and weft is 4)")
    arguments = {"polling_ms": polling_ms, "retries": retries, "seed": seed}
    figures = _measure(**arguments)
    return Finding(
        scenario="sm-failover",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{SPEC}: weft sm at {MASTER} and {STANDBY}, polled every {polling_ms} ms, {retries} times; kill -9 of the "
        f"one at {MASTER}",
        columns=("what", *PHASES),
        rows=_rows(figures),
        finding=_sentence(figures),
        trust="Seconds of this machine, by processes that share its processors with the lab: a MAD takes less on real "
        "switches, and discovery of a large subnet longer. The wait for a dead master, most of the outage, is as "
        "configured. A program that caches paths, as most do, notices nothing.",
        options=arguments,
        figures=figures,
    )


# -- the experiment --------------------------------------------------------------------------------------------------


def _measure(*, polling_ms: int, retries: int, seed: int) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="weft-") as folder,
        Lab(load(SPEC), f"failover-{time.monotonic_ns() % 10**9}") as lab,
    ):
        place = Path(folder)
        (place / "options").write_text(f"sminfo_polling_timeout {polling_ms}\npolling_retry_number {retries}\n")
        with _manager(lab, MASTER, 10, place) as master, _manager(lab, STANDBY, 5, place) as standby:
            master.wait_until(lambda status: status.sm_state == "master" and status.sweep is not None)
            standby.wait_until(lambda status: status.sm_state == "standby")
            _register(lab)
            standby.wait_until(lambda status: status.services == 1)  # the group is requested before it
            return _outage(lab, master, standby, seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manager:
    """A `weft sm` process with its log and its state file."""

    host: str
    process: subprocess.Popen[bytes]
    log: Path
    state: Path

    def wait_until(self, condition: Callable[[Status], bool]) -> None:
        until_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until_s and self.process.poll() is None:
            status = read_status(self.state)
            if status is not None and condition(status):
                return
            time.sleep(0.02)
        raise self.failure()

    def failure(self) -> SubnetError:
        log = self.log.read_text(errors="replace")[-1500:]
        return SubnetError(f"weft sm at {self.host} did not reach the expected state within {TIMEOUT_S:.0f} s:\n{log}")


@contextmanager
def _manager(lab: Lab, host: str, priority: int, place: Path) -> Iterator[_Manager]:
    log, state = place / f"{host}.log", place / f"{host}.json"
    where = ["--on", "ibsim", "--ibsim", lab.sockname, "--at", host, "--state", str(state)]
    command = [sys.executable, "-m", "weft", "sm", *where, "-p", str(priority), "-F", str(place / "options")]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield _Manager(host=host, process=process, log=log, state=state)
    finally:
        process.kill()
        process.wait()


def _register(lab: Lab) -> None:
    """Register state that ports do not hold: a multicast group with two members, and a service."""
    for host in MEMBERS:
        with closing(IbsimCarrier(host, lab.sockname)) as carrier:
            member = MCMemberRecord(
                mgid=MGID, port_gid=_gid(lab.fabric, host), join_state=JoinState.FULL_MEMBER, q_key=1, p_key=0xFFFF
            )
            components = ("mgid", "port_gid", "join_state", "q_key", "p_key", "t_class", "sl", "flow_label")
            _request_sa(carrier, Method.SET, SaAttribute.MC_MEMBER_RECORD, member, *components)
    with closing(IbsimCarrier(MEMBERS[0], lab.sockname)) as carrier:
        gid = _gid(lab.fabric, MEMBERS[0])
        service = ServiceRecord(service_id=SERVICE_ID, service_gid=gid, service_p_key=0xFFFF, service_lease=NO_EXPIRY)
        names = ("service_id", "service_gid", "service_p_key", "service_lease")
        _request_sa(carrier, Method.SET, SaAttribute.SERVICE_RECORD, service, *names)


def _outage(lab: Lab, master: _Manager, standby: _Manager, seed: int) -> dict[str, Any]:
    tables = lab.fabric.tables
    lids, routes = tables.lid.copy(), tables.lft.copy()
    with ExitStack() as stack:

        def at(host: str) -> IbsimCarrier:
            return stack.enter_context(closing(IbsimCarrier(host, lab.sockname)))

        messages = [_messages(at(host), lab.fabric, seed + number) for number, host in enumerate(SENDERS)]
        paths, state = _paths(at(NEWCOMER), lab.fabric), _sm_info(at(NEWCOMER), int(lids[_slot(lab.fabric, STANDBY)]))
        probes = [*messages, paths, state]
        run_probes(probes, until=lambda now_s, began_s: now_s - began_s >= BEFORE_S)
        killed_s = time.monotonic()
        master.process.kill()

        def is_over(now_s: float, began_s: float) -> bool:
            if now_s - began_s >= TIMEOUT_S:
                raise standby.failure()
            answered, master = paths.first_good(killed_s), state.first_good(killed_s)
            return answered is not None and master is not None and now_s >= answered[1] + AFTER_S

        run_probes(probes, until=is_over)
        run_probes(probes, until=lambda now_s, began_s: not any(probe.under_way for probe in probes), sends=False)
        survived = _check_registrations(at(NEWCOMER))
    figures = _figures(messages, paths, state, killed_s)
    now = tables.lft[:, : routes.shape[1]]
    figures["lids_changed"] = int((tables.lid != lids).sum())
    figures["routes_changed"] = int((now != routes[:, : now.shape[1]]).sum())
    figures["pairs_missing"] = check(lab.fabric_now(), hosts_only=True).missing
    return figures | survived | {"opensm_default_s": OPENSM_S}


# -- probes ---------------------------------------------------------------------------------------------------------


def _messages(carrier: IbsimCarrier, fabric: Fabric, seed: int) -> Probe:
    """Return a probe of the other hosts in turn, which reads their port counters so that a response comes back."""
    chance = np.random.default_rng(seed)
    hosts = [host.name for host in fabric.hcas if host.name != carrier.host]
    lids = chance.permutation([int(fabric.tables.lid[_slot(fabric, host)]) for host in hosts]).tolist()
    data = PortSelect.pack(port_select=1)
    mad = PlainMad.pack(
        mgmt_class=MgmtClass.PERF, method=Method.GET, attribute_id=PerfAttribute.PORT_COUNTERS, data=data
    )

    def request() -> tuple[bytes, Address]:
        lids.append(lids.pop(0))
        return mad, Address(lid=lids[0])

    return Probe(carrier, request, _is_good)


def _paths(carrier: IbsimCarrier, fabric: Fabric) -> Probe:
    """Return a probe that queries a path at the LID of the subnet manager that its port was given."""
    path = PathRecord(sgid=_gid(fabric, NEWCOMER), dgid=_gid(fabric, SENDERS[0]), numb_path=1)
    mad = _sa_mad(Method.GET, SaAttribute.PATH_RECORD, path, "sgid", "dgid", "numb_path")
    return Probe(carrier, lambda: (mad, administrator(carrier)), _is_good, every=PATH_TICKS)


def _sm_info(carrier: IbsimCarrier, lid: int) -> Probe:
    """Return a probe that asks whether the subnet manager at a LID is master."""
    mad = Smp.pack(method=Method.GET, attribute_id=SmpAttribute.SM_INFO)

    def is_master(answer: bytes) -> bool:
        return _is_good(answer) and SMInfo.unpack(answer, 64).sm_state == SMState.MASTER

    return Probe(carrier, lambda: (mad, Address(lid=lid, qp=0)), is_master, every=PATH_TICKS)


# -- MADs -------------------------------------------------------------------------------------------------------------


def _is_good(answer: bytes) -> bool:
    return MadHeader.status.get(answer) == 0


def _sa_mad(method: Method, attribute: SaAttribute, record: Format, *names: str) -> bytes:
    mask = component_mask(type(record), *names)
    return SaMad.pack(method=method, attribute_id=attribute, component_mask=mask, data=record.raw)


def _request_sa(carrier: IbsimCarrier, method: Method, attribute: SaAttribute, record: Format, *names: str) -> None:
    """Send a request to the SA. Raise SubnetError if it is refused."""
    answer = ask_administrator(carrier, _sa_mad(method, attribute, record, *names))
    if not _is_good(answer):
        status = MadHeader.status.get(answer)
        raise SubnetError(f"{method.name} of a {attribute.name} from {carrier.host}: status {status:#06x}")


def _check_registrations(carrier: IbsimCarrier) -> dict[str, bool]:
    """Return whether the new master knows the registrations of the old one."""
    queries: dict[str, tuple[SaAttribute, Format, str]] = {
        "service_kept": (SaAttribute.SERVICE_RECORD, ServiceRecord(service_id=SERVICE_ID), "service_id"),
        "group_kept": (SaAttribute.MC_MEMBER_RECORD, MCMemberRecord(mgid=MGID), "mgid"),
    }
    survived = dict.fromkeys(queries, True)
    for name, (attribute, record, component) in queries.items():
        try:
            _request_sa(carrier, Method.GET, attribute, record, component)
        except SubnetError:
            survived[name] = False
    return survived


def _slot(fabric: Fabric, host: str) -> int:
    return int(fabric.first_port[fabric.find_node(host).index]) + 1


def _gid(fabric: Fabric, host: str) -> int:
    return Gid.LINK_LOCAL_PREFIX << 64 | int(fabric.ports.guid[_slot(fabric, host)])


# -- results ----------------------------------------------------------------------------------------------------------


def _figures(messages: list[Probe], paths: Probe, state: Probe, killed_s: float) -> dict[str, Any]:
    answered, master = paths.first_good(killed_s), state.first_good(killed_s)
    assert answered is not None, "the outage is over"
    assert master is not None, "the outage is over"
    ends_s = [-math.inf, killed_s, answered[0], math.inf]
    spans = dict(zip(PHASES, pairwise(ends_s), strict=True))
    counts = {
        phase: np.sum([probe.count(*span) for probe in messages], axis=0).tolist() for phase, span in spans.items()
    }
    return {
        "failover_s": answered[1] - killed_s,
        "master_s": master[1] - killed_s,
        "messages": {phase: {"sent": sent, "delivered": delivered} for phase, (sent, delivered) in counts.items()},
        "path_queries": {
            phase: dict(zip(("sent", "answered"), paths.count(*span), strict=True)) for phase, span in spans.items()
        },
        "timeline": _timeline(messages, paths, killed_s),
    }


def _timeline(messages: list[Probe], paths: Probe, killed_s: float) -> dict[str, list[float]]:
    """Return counts in bins, from the kill on."""
    delivered = [over_s - killed_s for probe in messages for _, over_s, good in probe.done if good]
    answered = [over_s - killed_s for _, over_s, good in paths.done if good]
    failed = [sent_s - killed_s for sent_s, _, good in paths.done if not good]
    edges = np.arange(-BEFORE_S, max(answered), BIN_S)  # only complete bins
    bins = {"messages": delivered, "paths_answered": answered, "paths_failed": failed}
    return {"at_s": edges[:-1].tolist()} | {
        name: np.histogram(seconds, edges)[0].tolist() for name, seconds in bins.items()
    }


def _rows(figures: dict[str, Any]) -> tuple[tuple[str | int, ...], ...]:
    return tuple(
        (name, *(figures[kind][phase][field] for phase in PHASES))
        for name, kind, field in (
            ("messages on existing routes", "messages", "sent"),
            ("delivered messages", "messages", "delivered"),
            ("path queries for new connections", "path_queries", "sent"),
            ("answered path queries", "path_queries", "answered"),
        )
    )


def _sentence(figures: dict[str, Any]) -> str:
    messages, paths = figures["messages"]["outage"], figures["path_queries"]["outage"]
    survived = [name for name in ("service", "group") if figures[f"{name}_kept"]]
    registrations = (
        f"the {' and the '.join(survived)} registered before" if survived else "nothing that hosts had registered"
    )
    return (
        f"Without a subnet manager {messages['delivered']:,} of {messages['sent']:,} messages arrived, and "
        f"{paths['sent'] - paths['answered']:,} of {paths['sent']:,} path queries failed. The standby was master "
        f"{figures['master_s']:.2f} s after the kill and gave out paths after {figures['failover_s']:.2f} s; OpenSM's "
        f"with its defaults is master after {OPENSM_S} s. {figures['lids_changed']} LIDs and "
        f"{figures['routes_changed']} routes changed, {figures['pairs_missing']} pairs are cut off, and the new master "
        f"knows {registrations}."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw messages and path queries around the kill."""
    timeline, end_s = finding.figures["timeline"], finding.figures["failover_s"]
    at_s = np.array(timeline["at_s"]) + BIN_S / 2
    with titled_chart(path, "The subnet manager is killed", finding.ran, panels=2) as panels:
        left, right = panels
        left.step(at_s, timeline["messages"], where="mid", color=COLOURS[2])
        left.set_ylabel(f"messages delivered in {BIN_S * 1e3:.0f} ms")
        left.set_ylim(bottom=0)
        right.bar(at_s, timeline["paths_answered"], BIN_S, color=COLOURS[3], label="answered")
        right.bar(at_s, timeline["paths_failed"], BIN_S, color=COLOURS[1], label="failed")
        right.set_ylabel(f"path queries in {BIN_S * 1e3:.0f} ms")
        right.set_ylim(top=1.3 * max(right.get_ylim()))
        right.legend(loc="upper right", ncols=2)
        for axes in panels:
            axes.axvspan(0, end_s, color=COLOURS[0], alpha=0.15)
            axes.set_xlabel("seconds since the master was killed")
