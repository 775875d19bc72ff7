"""What a monitor knows, in the text that Prometheus reads.

    render(watch.latest, now_s=time.monotonic())        bytes, for `/metrics`

A counter that is not known has no sample, and when the last reading is old, or a round failed, nothing of the fabric
has any: a gap here is a gap there. `weft_monitor_up` says which it is. Who scrapes twice gets the same counters twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.monitor.down import missing_cables
from weft.monitor.metrics import PORT_METRICS, WEFT_METRICS, Family, PortMetric, escaped, labels, text
from weft.monitor.poll import Reading
from weft.monitor.ports import Ports
from weft.monitor.watch import Latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BITS = 8


def render(latest: Latest, *, now_s: float, more: Iterable[Family] = ()) -> bytes:
    """All metrics; `more` are those of who serves them, its tenants say."""
    told = [text(_monitor(latest, now_s)), text(more)]
    if latest.reading is not None and latest.is_fresh(now_s):
        told += [text((*_poll(latest, latest.reading), *_manager(latest), *_suspects(latest)))]
        told += [_of_reading(latest.reading)]
    return "".join(told).encode()


def _monitor(latest: Latest, now_s: float) -> list[Family]:
    age = _one(latest.age_s(now_s)) if latest.reading is not None else []
    up, events = latest.is_fresh(now_s), sorted(latest.events.items())
    return [
        Family("weft_monitor_up", "Whether the last poll brought counters, and not long ago.", "gauge", _one(up)),
        Family("weft_monitor_polls_total", "Polls that brought counters.", "counter", _one(latest.polls)),
        Family("weft_monitor_failures_total", "Polls that brought none.", "counter", _one(latest.failures)),
        Family("weft_monitor_reading_age_seconds", "Of the last counters.", "gauge", age),
        Family(
            "weft_monitor_events_total",
            "What happened to counters between polls.",
            "counter",
            [(labels(kind=kind), count) for kind, count in events],
        ),
    ]


def _poll(latest: Latest, reading: Reading) -> list[Family]:
    known = reading.known.any(axis=1)
    silent = int((reading.ports.is_polled & ~known).sum())
    down = len(missing_cables(reading.ports))
    clock = "On the fabric's clock, at the last poll: a lab's may be faster than ours."
    return [
        Family("weft_monitor_clock_seconds_total", clock, "counter", _one(reading.at_s)),
        Family("weft_monitor_poll_seconds", "How long the last poll took.", "gauge", _one(latest.poll_s)),
        Family("weft_monitor_ports", "Ports whose counters were read.", "gauge", _one(int(known.sum()))),
        Family("weft_links_down", "Cables that a plan or an earlier poll has, and are not up.", "gauge", _one(down)),
        Family("weft_monitor_silent_ports", "Ports that were asked and did not answer.", "gauge", _one(silent)),
    ]


def _one(value: float) -> list[tuple[str, float]]:
    return [("", int(value) if isinstance(value, bool) else value)]


def _manager(latest: Latest) -> list[Family]:
    found = latest.manager
    if found is None:
        return [Family("weft_sm_up", "Whether the subnet's master answers.", "gauge", _one(False))]
    who = labels(guid=_guid(found.guid), node=found.node, lid=found.lid, priority=found.priority)
    return [
        Family("weft_sm_up", "Whether the subnet's master answers.", "gauge", _one(True)),
        Family("weft_sm_info", "The subnet's master; its state: 3 is Master.", "gauge", [(who, found.state)]),
        Family("weft_sm_activity_total", "SMInfo:ActCount of the master.", "counter", _one(found.activity)),
    ]


def _suspects(latest: Latest) -> list[Family]:
    if latest.diagnosis is None:
        return []
    found = latest.diagnosis.suspects
    rows = {labels(port=one.ends[0], peer="".join(one.ends[1:]), kind=one.kind): one.confidence for one in found}
    return [
        Family("weft_suspects", "Links and hosts that a diagnosis suspects.", "gauge", _one(len(found))),
        Family("weft_suspect_confidence", "How sure it is of each, from 0 to 1.", "gauge", [*rows.items()]),
    ]


# -- ports ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """Ports of one kind of device, and how their samples begin."""

    prefix: str
    what: str
    slots: NDArray[np.intp]
    labels: list[str]


@lru_cache(maxsize=1)
def _of_reading(reading: Reading) -> str:
    """Once for each reading, however often it is scraped."""
    kinds = _groups(reading.ports)
    told = [_port_counters(reading, group, PORT_METRICS) for group in kinds]
    both = _Group(
        "weft_port_",
        "InfiniBand port",
        np.concatenate([one.slots for one in kinds]),
        [label for one in kinds for label in one.labels],
    )
    told.append(_port_counters(reading, both, WEFT_METRICS))
    return "".join(told) + _facts(reading.ports)


def _port_counters(reading: Reading, group: _Group, metrics: Iterable[PortMetric]) -> str:
    told = []
    for metric in metrics:
        name = group.prefix + metric.name
        known = reading.known[group.slots, metric.column].tolist()
        values = reading.counters[group.slots, metric.column].tolist()
        rows = [
            f"{name}{label} {value * metric.unit}\n"
            for label, value, is_known in zip(group.labels, values, known, strict=True)
            if is_known
        ]
        if rows:
            told.append(f"# HELP {name} {group.what} {metric.of}\n# TYPE {name} counter\n")
            told += rows
    return "".join(told)


@dataclass(frozen=True, slots=True)
class _Words:
    """What samples say of ports, [slot] each: for a large fabric every one that is made twice is felt."""

    guid: list[str]  # as ibnetdiscover prints it, and so infiniband_exporter: of a switch its own, of others the port's
    description: list[str]
    name: list[str]
    kind: list[str]
    number: list[int]
    lid: list[int]


@lru_cache(maxsize=1)
def _words(ports: Ports) -> _Words:
    fabric, node = ports.fabric, ports.fabric.ports.node.tolist()
    is_switch = _is_switch(ports)
    guids = np.where(is_switch, fabric.nodes.guid[fabric.ports.node], fabric.ports.guid).tolist()
    names, descriptions = ([escaped(one) for one in of] for of in (fabric.nodes.name, fabric.nodes.description))
    numbers = ports.number.tolist()
    return _Words(
        guid=[_guid(guid) for guid in guids],
        description=[descriptions[one] for one in node],
        name=[f"{names[one]}/{number}" for one, number in zip(node, numbers, strict=True)],
        kind=["SW" if one else "CA" for one in is_switch.tolist()],
        number=numbers,
        lid=ports.lid.tolist(),
    )


@lru_cache(maxsize=1)
def _groups(ports: Ports) -> tuple[_Group, _Group]:
    """Switches, and all others."""
    words, is_switch = _words(ports), _is_switch(ports)

    def group(prefix: str, what: str, which: NDArray[np.bool_]) -> _Group:
        slots = np.flatnonzero(which & ports.is_polled)
        made = [f'{{guid="{words.guid[slot]}",port="{words.number[slot]}"}}' for slot in slots.tolist()]
        return _Group(prefix, what, slots, made)

    return (
        group("infiniband_switch_port_", "InfiniBand switch port", is_switch),
        group("infiniband_hca_port_", "InfiniBand HCA port", ~is_switch),
    )


@lru_cache(maxsize=1)
def _facts(ports: Ports) -> str:
    """What changes with the cabling only."""
    switches, adapters = _groups(ports)
    words, bytes_s = _words(ports), (ports.rate_gbit_s * 1e9 / _BITS).tolist()
    of_adapters = {f'{{guid="{words.guid[slot]}"}}': bytes_s[slot] for slot in adapters.slots.tolist()}
    rows = [*_rows(switches), *_rows(adapters)]
    named = [(f'{label[:-1]},name="{words.name[slot]}"}}', 1) for label, slot in rows]
    rate = "Of one direction."
    return text(
        [
            _gauge(bytes_s, "infiniband_switch_port_rate_bytes_per_second", rate, _rows(switches)),
            Family("infiniband_hca_rate_bytes_per_second", rate, "gauge", [*of_adapters.items()]),
            *_infos(ports, "switch", switches),
            *_infos(ports, "hca", adapters),
            Family("weft_port_info", "What weft calls a port.", "gauge", named),
            _gauge(ports.state.tolist(), "weft_port_state", "1 Down, 2 Init, 3 Armed, 4 Active.", rows),
            _gauge(ports.width_active.tolist(), "weft_port_width_lanes", "Lanes in use.", rows),
            _gauge(ports.width_supported.tolist(), "weft_port_width_supported_lanes", "Lanes that it has.", rows),
        ]
    )


def _rows(group: _Group) -> list[tuple[str, int]]:
    return list(zip(group.labels, group.slots.tolist(), strict=True))


def _gauge(values: Sequence[float], name: str, help_: str, rows: list[tuple[str, int]]) -> Family:
    return Family(name, help_, "gauge", [(label, values[slot]) for label, slot in rows])


def _infos(ports: Ports, kind: str, group: _Group) -> list[Family]:
    """Of devices, and of what is at the other end of their cables."""
    words, peer = _words(ports), ports.peer.tolist()
    devices, ends = {}, []
    for label, slot in _rows(group):
        own, far = f'{kind}="{words.description[slot]}"', peer[slot]
        devices[f'{{guid="{words.guid[slot]}",{own},lid="{words.lid[slot]}"}}'] = 1
        if far >= 0:
            uplink = (
                f'uplink="{words.description[far]}",uplink_guid="{words.guid[far]}",uplink_type="{words.kind[far]}",'
                f'uplink_port="{words.number[far]}",uplink_lid="{words.lid[far]}"'
            )
            ends.append((f"{label[:-1]},{own},{uplink}}}", 1))
    return [
        Family(f"infiniband_{kind}_info", f"InfiniBand {kind} information", "gauge", [*devices.items()]),
        Family(f"infiniband_{kind}_uplink_info", f"InfiniBand {kind} uplink information", "gauge", ends),
    ]


def _is_switch(ports: Ports) -> NDArray[np.bool_]:
    """[slot]"""
    return np.asarray(ports.fabric.nodes.kind == NodeKind.SWITCH)[ports.fabric.ports.node]


def _guid(guid: int) -> str:
    return f"0x{guid:016x}"
