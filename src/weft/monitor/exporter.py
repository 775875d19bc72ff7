"""The state of a monitor in Prometheus text format.

    render(watch.latest, now_s=time.monotonic())        bytes, for `/metrics`

An unknown counter has no sample. If the last reading is old or the last poll failed, the fabric has no samples at all,
so gaps are visible in Prometheus; `weft_monitor_up` is 0 then. Scraping twice between polls returns the same counters.
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
    """Return all metrics; `more` are metrics of the caller, such as tenants."""
    parts = [text(_monitor(latest, now_s)), text(more)]
    if latest.reading is not None and latest.is_fresh(now_s):
        parts += [text((*_poll(latest, latest.reading), *_manager(latest), *_suspects(latest)))]
        parts += [_of_reading(latest.reading)]
    return "".join(parts).encode()


def _monitor(latest: Latest, now_s: float) -> list[Family]:
    age = _sample(latest.age_s(now_s)) if latest.reading is not None else []
    up, events = latest.is_fresh(now_s), sorted(latest.events.items())
    return [
        Family("weft_monitor_up", "1 if the last poll succeeded and is recent.", "gauge", _sample(up)),
        Family("weft_monitor_polls_total", "Successful polls.", "counter", _sample(latest.polls)),
        Family("weft_monitor_failures_total", "Failed polls.", "counter", _sample(latest.failures)),
        Family("weft_monitor_reading_age_seconds", "Age of the last reading.", "gauge", age),
        Family(
            "weft_monitor_events_total",
            "Events between polls, by kind.",
            "counter",
            [(labels(kind=kind), count) for kind, count in events],
        ),
    ]


def _poll(latest: Latest, reading: Reading) -> list[Family]:
    known = reading.known.any(axis=1)
    silent = int((reading.ports.is_polled & ~known).sum())
    down = len(missing_cables(reading.ports))
    clock = "The fabric's clock at the last poll; the clock of a lab may run faster."
    return [
        Family("weft_monitor_clock_seconds_total", clock, "counter", _sample(reading.at_s)),
        Family("weft_monitor_poll_seconds", "Duration of the last poll.", "gauge", _sample(latest.poll_s)),
        Family("weft_monitor_ports", "Ports whose counters were read.", "gauge", _sample(int(known.sum()))),
        Family("weft_links_down", "Cables of the plan or of earlier polls that are not up.", "gauge", _sample(down)),
        Family("weft_monitor_silent_ports", "Ports that did not answer the last poll.", "gauge", _sample(silent)),
    ]


def _sample(value: float) -> list[tuple[str, float]]:
    return [("", int(value) if isinstance(value, bool) else value)]


def _manager(latest: Latest) -> list[Family]:
    manager = latest.manager
    if manager is None:
        return [Family("weft_sm_up", "1 if the master subnet manager answers.", "gauge", _sample(False))]
    master = labels(guid=_guid(manager.guid), node=manager.node, lid=manager.lid, priority=manager.priority)
    return [
        Family("weft_sm_up", "1 if the master subnet manager answers.", "gauge", _sample(True)),
        Family(
            "weft_sm_info", "The master subnet manager and its state: 3 is Master.", "gauge", [(master, manager.state)]
        ),
        Family("weft_sm_activity_total", "SMInfo:ActCount of the master.", "counter", _sample(manager.activity)),
    ]


def _suspects(latest: Latest) -> list[Family]:
    if latest.diagnosis is None:
        return []
    suspects = latest.diagnosis.suspects
    rows = {
        labels(port=suspect.ends[0], peer="".join(suspect.ends[1:]), kind=suspect.kind): suspect.confidence
        for suspect in suspects
    }
    return [
        Family("weft_suspects", "Suspects of the diagnosis.", "gauge", _sample(len(suspects))),
        Family("weft_suspect_confidence", "Confidence in each suspect, from 0 to 1.", "gauge", [*rows.items()]),
    ]


# -- ports ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of ports of one kind of device, with their metric prefix and labels."""

    prefix: str
    noun: str
    slots: NDArray[np.intp]
    labels: list[str]


@lru_cache(maxsize=1)
def _of_reading(reading: Reading) -> str:
    """Render a reading; cached, so that repeated scrapes cost nothing."""
    kinds = _groups(reading.ports)
    parts = [_port_counters(reading, group, PORT_METRICS) for group in kinds]
    both = _Group(
        "weft_port_",
        "InfiniBand port",
        np.concatenate([group.slots for group in kinds]),
        [label for group in kinds for label in group.labels],
    )
    parts.append(_port_counters(reading, both, WEFT_METRICS))
    return "".join(parts) + _facts(reading.ports)


def _port_counters(reading: Reading, group: _Group, metrics: Iterable[PortMetric]) -> str:
    lines = []
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
            lines.append(f"# HELP {name} {group.noun} {metric.of}\n# TYPE {name} counter\n")
            lines += rows
    return "".join(lines)


@dataclass(frozen=True, slots=True)
class _PortText:
    """The label texts of ports, [slot] each, computed once because large fabrics have many."""

    guid: list[str]  # as in ibnetdiscover and infiniband_exporter: node GUID of switches, port GUID of others
    description: list[str]
    name: list[str]
    kind: list[str]
    number: list[int]
    lid: list[int]


@lru_cache(maxsize=1)
def _port_text(ports: Ports) -> _PortText:
    fabric, node = ports.fabric, ports.fabric.ports.node.tolist()
    is_switch = _is_switch(ports)
    guids = np.where(is_switch, fabric.nodes.guid[fabric.ports.node], fabric.ports.guid).tolist()
    names, descriptions = ([escaped(index) for index in of] for of in (fabric.nodes.name, fabric.nodes.description))
    numbers = ports.number.tolist()
    return _PortText(
        guid=[_guid(guid) for guid in guids],
        description=[descriptions[index] for index in node],
        name=[f"{names[index]}/{number}" for index, number in zip(node, numbers, strict=True)],
        kind=["SW" if index else "CA" for index in is_switch.tolist()],
        number=numbers,
        lid=ports.lid.tolist(),
    )


@lru_cache(maxsize=1)
def _groups(ports: Ports) -> tuple[_Group, _Group]:
    """Return the groups of switch ports and of all other ports."""
    words, is_switch = _port_text(ports), _is_switch(ports)

    def group(prefix: str, noun: str, selected: NDArray[np.bool_]) -> _Group:
        slots = np.flatnonzero(selected & ports.is_polled)
        port_labels = [f'{{guid="{words.guid[slot]}",port="{words.number[slot]}"}}' for slot in slots.tolist()]
        return _Group(prefix, noun, slots, port_labels)

    return (
        group("infiniband_switch_port_", "InfiniBand switch port", is_switch),
        group("infiniband_hca_port_", "InfiniBand HCA port", ~is_switch),
    )


@lru_cache(maxsize=1)
def _facts(ports: Ports) -> str:
    """Render the metrics that change only with the cabling."""
    switches, adapters = _groups(ports)
    words, bytes_s = _port_text(ports), (ports.rate_gbit_s * 1e9 / _BITS).tolist()
    of_adapters = {f'{{guid="{words.guid[slot]}"}}': bytes_s[slot] for slot in adapters.slots.tolist()}
    rows = [*_rows(switches), *_rows(adapters)]
    named = [(f'{label[:-1]},name="{words.name[slot]}"}}', 1) for label, slot in rows]
    rate = "Rate of one direction."
    return text(
        [
            _gauge(bytes_s, "infiniband_switch_port_rate_bytes_per_second", rate, _rows(switches)),
            Family("infiniband_hca_rate_bytes_per_second", rate, "gauge", [*of_adapters.items()]),
            *_infos(ports, "switch", switches),
            *_infos(ports, "hca", adapters),
            Family("weft_port_info", "The port's name in weft.", "gauge", named),
            _gauge(
                ports.state.tolist(), "weft_port_state", "State of the port: 1 Down, 2 Init, 3 Armed, 4 Active.", rows
            ),
            _gauge(ports.width_active.tolist(), "weft_port_width_lanes", "Lanes in use.", rows),
            _gauge(ports.width_supported.tolist(), "weft_port_width_supported_lanes", "Lanes supported.", rows),
        ]
    )


def _rows(group: _Group) -> list[tuple[str, int]]:
    return list(zip(group.labels, group.slots.tolist(), strict=True))


def _gauge(values: Sequence[float], name: str, help_: str, rows: list[tuple[str, int]]) -> Family:
    return Family(name, help_, "gauge", [(label, values[slot]) for label, slot in rows])


def _infos(ports: Ports, kind: str, group: _Group) -> list[Family]:
    """Return info metrics of devices and of the ports at the other end of their cables."""
    words, peer = _port_text(ports), ports.peer.tolist()
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
    """Return which slots belong to a switch."""
    return np.asarray(ports.fabric.nodes.kind == NodeKind.SWITCH)[ports.fabric.ports.node]


def _guid(guid: int) -> str:
    return f"0x{guid:016x}"
