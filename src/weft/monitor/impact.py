"""Whom a suspect concerns: jobs and tenants that send by its link, by the forwarding tables, and what it costs jobs.

    fabric = read_routed(carrier)
    diagnosis = add_impact(diagnosis, fabric, read_jobs(fabric, told))

`fabric` is the subnet with its tables as MADs tell them; names are those of the diagnosis. Costs are simulated by
`sim.steady`: the rates of the jobs with the link as it is, and with a good one; of a link that goes down, while it is
down and nobody has routed round it. A tenant is whoever shares a P_Key that is not the default one: it is concerned
if a packet between two of its hosts can come by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.fabric import faults
from weft.fabric.kernels.forwarding import MOST_HOPS
from weft.fabric.model import Fabric
from weft.fabric.rates import speed_by_bits
from weft.fabric.views import Node
from weft.ids import PKey
from weft.mad.carrier import Carrier
from weft.mad.walk import walk
from weft.monitor.suspects import Diagnosis, Impact, JobCost, Suspect
from weft.routing.patterns import host_ports
from weft.sim.steady import PATTERNS, Ills, Job, settle
from weft.sm.discovery.known import carried_over
from weft.sm.discovery.view import make_view
from weft.sm.pkey.table_upload import read_pkeys
from weft.sm.sender import Sender
from weft.sm.ucast.forwarding import read_forwarding

_MOST_SUSPECTS = 10  # that are weighed: more are looked at when these are mended
_MOST_PAIRS = 1 << 16  # of a tenant: one that comes by is enough
_BASE = 0x7FFF  # of a P_Key, without the bit for full members
Slots = NDArray[np.int64]


def read_routed(carrier: Carrier) -> Fabric:
    """What hangs together with the carrier's port, its forwarding tables and P_Keys; lanes are not asked for."""
    view, sender = make_view(walk(carrier)), Sender(carrier)
    known, tables = carried_over(None, view), view.fabric.tables
    tables.port_info[:] = view.port_info
    read_forwarding(sender, view, known)
    read_pkeys(sender, view, known, view.end_ports)
    tables.lft, tables.pkey = known.tables.lft, known.tables.pkey
    return view.fabric


def read_jobs(fabric: Fabric, told: Sequence[Mapping[str, Any]]) -> list[Job]:
    """Return a lab's jobs (name, pattern, hosts, and Gbit/s that they want) without hosts that are down."""
    jobs, wanted_gbit_s = [], []
    for one in told:
        hosts = [_port(fabric, host) for host in one["hosts"] if host in fabric]
        if len(hosts) > 1:
            jobs.append(Job(name=one["name"], pattern=one["pattern"], hosts=np.array(hosts, np.int64)))
            wanted_gbit_s.append(one["wanted_gbit_s"] * len(hosts) / len(one["hosts"]))
    most = settle(fabric, jobs).job_wanted_gbit_s.tolist() if jobs else []
    shares = (wanted / full for wanted, full in zip(wanted_gbit_s, most, strict=True))
    return [replace(job, share=min(share, 1.0)) for job, share in zip(jobs, shares, strict=True)]


def _port(fabric: Fabric, name: str) -> int:
    thing = fabric[name]
    return thing.port(1).slot if isinstance(thing, Node) else fabric.find_port(name).slot


def add_impact(diagnosis: Diagnosis, fabric: Fabric, jobs: Sequence[Job] = ()) -> Diagnosis:
    """The same, and of the first suspects whom they concern."""
    weighed = [replace(one, impact=_weigh(fabric, one, jobs)) for one in diagnosis.suspects[:_MOST_SUSPECTS]]
    return replace(diagnosis, suspects=(*weighed, *diagnosis.suspects[_MOST_SUSPECTS:]))


def _weigh(fabric: Fabric, suspect: Suspect, jobs: Sequence[Job]) -> Impact | None:
    if suspect.kind in ("link down", "duplicate GUID"):  # nothing is routed over it any more
        return None
    ends = [fabric.find_port(end).slot for end in suspect.ends if end in fabric and len(suspect.ends) > 1]
    if len(ends) < 2:
        return None
    by = np.array(ends)
    pairs = [job.hosts[PATTERNS[job.pattern](len(job.hosts), np.random.default_rng(job.seed))] for job in jobs]
    concerned = [job for job, ends in zip(jobs, pairs, strict=True) if crosses(fabric, ends, by).any()]
    return Impact(jobs=_costs(fabric, suspect, concerned), tenants=tuple(_tenants(fabric, by)))


def _costs(fabric: Fabric, suspect: Suspect, jobs: Sequence[Job]) -> tuple[JobCost, ...]:
    if not jobs:
        return ()
    as_seen, mended = _ill_and_good(fabric, suspect)
    slow = {} if suspect.takes is None else {fabric.find_port(suspect.ends[0]).slot: suspect.takes}
    ill, good = settle(as_seen, jobs, Ills(takes=slow)), settle(mended, jobs)
    columns = (ill.job_gbit_s, good.job_gbit_s, ill.job_slowest, good.job_slowest)
    return tuple(
        JobCost(name=job.name, gbit_s=have, without_gbit_s=would, slowest=slowest, without_slowest=best)
        for job, have, would, slowest, best in zip(jobs, *(column.tolist() for column in columns), strict=True)
    )


def _ill_and_good(fabric: Fabric, suspect: Suspect) -> tuple[Fabric, Fabric]:
    """As it was seen, and as it would be: no errors, and as wide and fast as both ends support."""
    end, (ber, of_other) = suspect.ends[0], suspect.symbol_ber
    link = fabric.ports.link[fabric.find_port(end).slot]
    if suspect.kind == "flapping":
        return faults.remove_link(fabric, end), fabric
    good = fabric
    if suspect.could_run:
        lanes, speed = suspect.could_run
        width, pace = fabric.links.width.copy(), fabric.links.speed.copy()
        width[link], pace[link] = lanes, speed_by_bits()[speed]
        good = fabric.with_links(replace(fabric.links, width=width, speed=pace))
    return (faults.degrade(fabric, end, ber, one_way=of_other < ber / 2) if ber else fabric), good


def _tenants(fabric: Fabric, by: Slots) -> Iterator[str]:
    hosts = host_ports(fabric).astype(np.int64)
    keys = fabric.tables.pkey[hosts] & _BASE if "pkey" in vars(fabric.tables) else np.zeros((len(hosts), 0), int)
    behind = _leads_to(fabric, hosts, by)
    for key in np.unique(keys[(keys != 0) & (keys != _BASE)]).tolist():
        members = (keys == key).any(axis=1)
        src, dst = hosts[members], hosts[members & behind]
        if len(dst):
            src = src[:: max(1, len(src) * len(dst) // _MOST_PAIRS)]
            pairs = np.stack(np.meshgrid(src, dst), axis=-1).reshape(-1, 2)
            if crosses(fabric, pairs[pairs[:, 0] != pairs[:, 1]], by).any():
                yield str(PKey(key))


def _leads_to(fabric: Fabric, hosts: Slots, by: Slots) -> NDArray[np.bool_]:
    """[host] -> would one of these ports, at its own node, be the way there?"""
    tables, node, found = fabric.tables, fabric.ports.node[by], np.zeros(len(hosts), bool)
    for slot, row in zip(by.tolist(), tables.switch_row[node].tolist(), strict=True):
        found |= (tables.lft[row, tables.lid[hosts]] == fabric.ports.number[slot]) if row >= 0 else hosts != slot
    return found


def crosses(fabric: Fabric, pairs: Slots, by: Slots) -> NDArray[np.bool_]:
    """[pair] -> does a packet from the first port to the second leave by one of these slots?"""
    tables, ports = fabric.tables, fabric.ports
    out, lid, found = pairs[:, 0].copy(), tables.lid[pairs[:, 1]], np.zeros(len(pairs), bool)
    going = np.arange(len(pairs))
    for _ in range(MOST_HOPS):
        found[going] |= np.isin(out[going], by)
        node = ports.node[ports.peer[out[going]]]
        on = (ports.peer[out[going]] >= 0) & (tables.switch_row[node] >= 0)
        going, node = going[on], node[on]
        number = tables.lft[tables.switch_row[node], lid[going]].astype(np.int64)
        on = number <= fabric.nodes.n_ports[node]
        going, out[going[on]] = going[on], fabric.first_port[node[on]] + number[on]
        if not len(going):
            break
    return found
