"""The impact of a suspect: jobs and tenants with packets on its link, by the forwarding tables, and the cost for jobs.

    fabric = read_routed(carrier)
    diagnosis = add_impact(diagnosis, fabric, read_jobs(fabric, descriptions))

`fabric` is the subnet with the tables read by MADs, and has the names of the diagnosis. Costs are simulated with
`sim.steady`: rates of the jobs with the link as it is, and with a good link; for a flapping link, while it is down and
before rerouting. A tenant is a set of hosts that share a P_Key other than the default; it is affected if a packet
between two of its hosts can cross the link.
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
from weft.sim.steady import Degradation, LoadJob, job_pairs, settle
from weft.sm.discovery.known import carried_over
from weft.sm.discovery.view import make_view
from weft.sm.pkey.table_upload import read_pkeys
from weft.sm.sender import Sender
from weft.sm.ucast.forwarding import read_forwarding

_MOST_SUSPECTS = 10  # for which the impact is computed
_MOST_PAIRS = 1 << 16  # sampled pairs of hosts of a tenant
_BASE = 0x7FFF  # P_Key without the membership bit
Slots = NDArray[np.int64]


def read_routed(carrier: Carrier) -> Fabric:
    """Read the subnet of the carrier's port with its forwarding tables and P_Keys, but no virtual lanes."""
    view, sender = make_view(walk(carrier)), Sender(carrier)
    known, tables = carried_over(None, view), view.fabric.tables
    tables.port_info[:] = view.port_info
    read_forwarding(sender, view, known)
    read_pkeys(sender, view, known, view.end_ports)
    tables.lft, tables.pkey = known.tables.lft, known.tables.pkey
    return view.fabric


def read_jobs(fabric: Fabric, descriptions: Sequence[Mapping[str, Any]]) -> list[LoadJob]:
    """Return a lab's jobs (name, pattern, hosts, demand in Gbit/s) without hosts that are down."""
    jobs, wanted_gbit_s = [], []
    for description in descriptions:
        hosts = [_port(fabric, host) for host in description["hosts"] if host in fabric]
        if len(hosts) > 1:
            jobs.append(
                LoadJob(name=description["name"], pattern=description["pattern"], hosts=np.array(hosts, np.int64))
            )
            wanted_gbit_s.append(description["wanted_gbit_s"] * len(hosts) / len(description["hosts"]))
    most = settle(fabric, jobs).job_wanted_gbit_s.tolist() if jobs else []
    shares = (demand / full for demand, full in zip(wanted_gbit_s, most, strict=True))
    return [replace(job, share=min(share, 1.0)) for job, share in zip(jobs, shares, strict=True)]


def _port(fabric: Fabric, name: str) -> int:
    node = fabric[name]
    return node.port(1).slot if isinstance(node, Node) else fabric.find_port(name).slot


def add_impact(diagnosis: Diagnosis, fabric: Fabric, jobs: Sequence[LoadJob] = ()) -> Diagnosis:
    """Return the diagnosis with the impact of its first suspects."""
    weighed = [
        replace(suspect, impact=_weigh(fabric, suspect, jobs)) for suspect in diagnosis.suspects[:_MOST_SUSPECTS]
    ]
    return replace(diagnosis, suspects=(*weighed, *diagnosis.suspects[_MOST_SUSPECTS:]))


def _weigh(fabric: Fabric, suspect: Suspect, jobs: Sequence[LoadJob]) -> Impact | None:
    if suspect.kind in ("link down", "duplicate GUID"):  # no route uses it
        return None
    ends = [fabric.find_port(end).slot for end in suspect.ends if end in fabric and len(suspect.ends) > 1]
    if len(ends) < 2:
        return None
    by = np.array(ends)
    pairs = [job.hosts[job_pairs(fabric, job)] for job in jobs]
    concerned = [job for job, ends in zip(jobs, pairs, strict=True) if crosses(fabric, ends, by).any()]
    return Impact(jobs=_costs(fabric, suspect, concerned), tenants=tuple(_tenants(fabric, by)))


def _costs(fabric: Fabric, suspect: Suspect, jobs: Sequence[LoadJob]) -> tuple[JobCost, ...]:
    if not jobs:
        return ()
    as_seen, repaired = _with_and_without_fault(fabric, suspect)
    slow = {} if suspect.takes is None else {fabric.find_port(suspect.ends[0]).slot: suspect.takes}
    ill, good = settle(as_seen, jobs, Degradation(accept_share=slow)), settle(repaired, jobs)
    columns = (ill.job_gbit_s, good.job_gbit_s, ill.job_slowest, good.job_slowest)
    return tuple(
        JobCost(name=job.name, gbit_s=have, without_gbit_s=would, slowest=slowest, without_slowest=best)
        for job, have, would, slowest, best in zip(jobs, *(column.tolist() for column in columns), strict=True)
    )


def _with_and_without_fault(fabric: Fabric, suspect: Suspect) -> tuple[Fabric, Fabric]:
    """Return the fabric as observed, and with a good link: no errors, at the rate that both ends support."""
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
    """Return which hosts are reached through one of these ports, by the table of the port's own node."""
    tables, node, leads = fabric.tables, fabric.ports.node[by], np.zeros(len(hosts), bool)
    for slot, row in zip(by.tolist(), tables.switch_row[node].tolist(), strict=True):
        leads |= (tables.lft[row, tables.lid[hosts]] == fabric.ports.number[slot]) if row >= 0 else hosts != slot
    return leads


def crosses(fabric: Fabric, pairs: Slots, by: Slots) -> NDArray[np.bool_]:
    """Return for which pairs of ports a packet from the first to the second leaves by one of these slots."""
    tables, ports = fabric.tables, fabric.ports
    out, lid, crossing = pairs[:, 0].copy(), tables.lid[pairs[:, 1]], np.zeros(len(pairs), bool)
    going = np.arange(len(pairs))
    for _ in range(MOST_HOPS):
        crossing[going] |= np.isin(out[going], by)
        node = ports.node[ports.peer[out[going]]]
        on = (ports.peer[out[going]] >= 0) & (tables.switch_row[node] >= 0)
        going, node = going[on], node[on]
        number = tables.lft[tables.switch_row[node], lid[going]].astype(np.int64)
        has_route = number <= fabric.nodes.n_ports[node]
        going = going[has_route]
        out[going] = fabric.first_port[node[has_route]] + number[has_route]
        if not len(going):
            break
    return crossing
