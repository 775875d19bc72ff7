"""UFM's telemetry from the counters that the service's monitor reads: CSV, Prometheus, top ports, history.

    telemetry = Telemetry(monitor)
    telemetry.csv(LOW_FREQ_DEBUG)                          one line for each cabled port, as UFM Telemetry serves it
    telemetry.top(picture, "PortXmitDataExtended", 5)      GET telemetry?type=topX

Counts are the devices' counters. Rates are computed from the last two readings, a second apart; a lab's clock may run
faster.

    POST app/telemetry/instances/pdr_dynamic {"counters": [...], "requested_guids": [{"guid": ..., "ports": [1, 2]}]}
    GET  http://HOST:PORT/csv/xcset/pdr_dynamic

UFM starts a process for each. Here the service's monitor reads all counters, so an instance is a selection.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SubnetError, UnknownName
from weft.monitor.change import Change
from weft.monitor.health import health
from weft.monitor.metrics import Family, labels
from weft.monitor.poll import Reading
from weft.serve.console.monitor import POLL_S, FabricMonitor
from weft.serve.desired import ConflictError, NotFoundError
from weft.serve.ufm.counters import COUNTERS, Counter, find_counter, is_rate
from weft.serve.ufm.jobs import stamp
from weft.serve.ufm.shapes import Picture, Port, hex_guid

_TOP = 10  # number of entries of aggr_topx, which has no limit parameter
_WORD_BYTES = 4
_TIMEOUT_S = 10.0
_AGO = re.compile(r"-(\d+)(s|sec|min|m|h|d)?")
_UNITS_S = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400, None: 1}
_OBJECTS = {"servers": "Computer", "switches": "Switch"}


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV format of UFM Telemetry: the names of identity columns, and the attribute with the counter's name."""

    node_guid: str
    port_num: str
    name: str  # attribute of Counter


METRICS = Table("node_guid", "port_num", "telemetry")
CONVERTED_ENTERPRISE = Table("node_guid", "port_num", "session")
LOW_FREQ_DEBUG = Table("Node_GUID", "Port_Number", "debug")


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of counters and ports; None means all."""

    counters: tuple[Counter, ...] = COUNTERS
    ports: frozenset[str] | None = None  # UFM's port names


@dataclass(frozen=True, slots=True)
class _Row:
    slot: int
    node_guid: int
    port_guid: int
    number: int

    @property
    def name(self) -> str:
        return f"{hex_guid(self.node_guid)}_{self.number}"


class Telemetry:
    """The telemetry interface of a monitor."""

    def __init__(self, monitor: FabricMonitor) -> None:
        self._monitor = monitor

    # -- as UFM Telemetry serves it -----------------------------------------------------------------------------------

    def csv(self, table: Table, selection: Selection | None = None, labelled: Picture | None = None) -> str:
        """Return a header and one line for each port. Unknown counts are empty.

        labelled: the picture with the descriptions of ports, to be added as columns.
        """
        reading, selection = self._monitor.latest().reading, selection or Selection()
        names = [attrgetter(table.name)(counter) for counter in selection.counters]
        head = ["timestamp", "source_id", "tag", table.node_guid, "port_guid", table.port_num]
        columns = [int(counter.column) for counter in selection.counters]
        at_us = str(int(reading.stamp_s * 1e6))
        lines = [",".join(head + (["node_description", "port_label"] if labelled else []) + names)]
        for row in _rows(reading):
            if selection.ports is not None and row.name not in selection.ports:
                continue
            node = f"0x{hex_guid(row.node_guid)}"
            words = [at_us, node, "", node, f"0x{hex_guid(row.port_guid)}", str(row.number)]
            if labelled:
                port = labelled.named(row.name)
                words += [_without_port(port.node_description), port.dname] if port else ["", ""]
            counts = zip(reading.counters[row.slot, columns], reading.known[row.slot, columns], strict=True)
            lines.append(",".join(words + [str(count) if is_known else "" for count, is_known in counts]))
        return "\n".join(lines) + "\n"

    def prometheus(self, picture: Picture | None = None) -> str:
        """Return the counters for Prometheus; a picture adds descriptions of ports as labels."""
        reading = self._monitor.latest().reading
        rows = [(row, self._labels(row, picture)) for row in _rows(reading)]
        families = (
            Family(
                counter.telemetry,
                f"UFM Telemetry's {counter.telemetry}.",
                "counter",
                [
                    (words, float(reading.counters[row.slot, counter.column]))
                    for row, words in rows
                    if reading.known[row.slot, counter.column]
                ],
            )
            for counter in COUNTERS
        )
        return "".join(counter.text() for counter in families)

    def _labels(self, row: _Row, picture: Picture | None) -> str:
        node, guid = (f"0x{hex_guid(guid_value)}" for guid_value in (row.node_guid, row.port_guid))
        words = {"source_id": node, "node_guid": node, "port_guid": guid, "port_num": str(row.number)}
        port = None if picture is None else picture.named(row.name)
        if port is not None:
            is_host = port.description.startswith("Computer")
            words |= {
                "device_type": "host" if is_host else "switch",
                "device_name": "" if is_host else port.system_name,
                "hostname": port.system_name if is_host else "",
                "node_desc": port.node_description,
                "level": str(port.tier),
                "port_id": port.name,
            }
        return labels(**words)

    # -- REST ---------------------------------------------------------------------------------------------------------

    def top(
        self, picture: Picture, pick_by: str, limit: int, more: Sequence[str] = (), *, by_device: bool = False
    ) -> list[dict[str, Any]]:
        """Return the ports or systems with the highest rates of a counter: `PortXmitPktsExtended_Rate`."""
        counters = [find_counter(name) for name in (pick_by, *more)]
        change = self._change()
        entries: dict[str, dict[str, Any]] = {}
        for row, port in self._ports(picture, change):
            name, guid = (
                (port.system_name, port.system_id) if by_device else (_without_port(port.node_description), port.name)
            )
            entry = entries.setdefault(guid, {"name": name, "guid": guid})
            for counter in counters:
                key = f"{counter.telemetry}_Rate"
                entry[key] = entry.get(key, 0.0) + float(change.delta[row.slot, counter.column]) / change.seconds
        first = f"{counters[0].telemetry}_Rate"
        return sorted(entries.values(), key=lambda entry: -entry[first])[:limit]

    def history(self, picture: Picture, names: Sequence[str], members: Sequence[str], since_s: float) -> dict[str, Any]:
        """Return values or rates of counters of ports, by the time of the reading."""
        by_time: dict[str, dict[str, dict[str, float]]] = {}
        counters = {name: find_counter(name) for name in names}
        for member in members:
            port = picture.named(member)
            if port is None:
                raise UnknownName("port", member[:80], ())
            place = self._place(member)
            for name, counter in counters.items():
                read = self._monitor.history.series if is_rate(name) else self._monitor.history.values
                for at_s, value in zip(*read(place, counter.column, since_s), strict=True):
                    if not np.isnan(value):
                        by_time.setdefault(stamp(at_s), {}).setdefault(member, {})[name] = float(value)
        return {
            at: {"Ports": {name: {"statistics": values} for name, values in ports.items()}}
            for at, ports in sorted(by_time.items())
        }

    def session(self, picture: Picture) -> dict[str, Any]:
        """Return the last reading in the format of the default monitoring session."""
        reading = self._monitor.latest().reading
        ports = {}
        for row in _rows(reading):
            if (port := picture.named(row.name)) is not None:
                is_known = reading.known[row.slot]
                counts = {c.session: int(reading.counters[row.slot, c.column]) for c in COUNTERS if is_known[c.column]}
                ports[row.name] = {"statistics": counts, "dname": port.dname, "last_updated": stamp(reading.stamp_s)}
        return {stamp(reading.stamp_s): {"Ports": ports}}

    def aggregate(self, picture: Picture, objects: str, attribute: str, alarms: Mapping[str, int]) -> dict[str, Any]:
        """Return the busiest servers or switches: by bandwidth (bytes/s), congestion (percent) or alarms."""
        kind = _one_of("object", objects, _OBJECTS)
        if attribute == "alarms":
            systems = [system for system in picture.systems if (system.type == "switch") == (kind == "Switch")]
            counted = ((system.guid, system.system_name, float(alarms.get(system.guid, 0))) for system in systems)
            return {"device": {"Alarms": _ranked(counted)}}
        modes = _one_of("attr", attribute, {"bw": ("TxBW", "RxBW"), "cong": ("TCBW", "RCBW")})
        change = self._change()
        values = _bandwidth(change) if attribute == "bw" else _congestion(change)
        ports = [(row, port) for row, port in self._ports(picture, change) if port.description.startswith(kind)]
        return {
            "device": {
                mode: _ranked(_by_system(ports, column, np.sum if attribute == "bw" else np.max))
                for mode, column in zip(modes, values, strict=True)
            },
            "port": {
                mode: _ranked((port.name, port.node_description, float(column[row.slot])) for row, port in ports)
                for mode, column in zip(modes, values, strict=True)
            },
        }

    # -- readings -----------------------------------------------------------------------------------------------------

    def _change(self) -> Change:
        """Return the change between the last two readings; wait for the second one if polling just started."""
        until_s = time.monotonic() + _TIMEOUT_S
        while True:
            change = self._monitor.latest().change
            if change is not None and change.seconds > 0:
                return change
            if time.monotonic() > until_s:
                raise SubnetError("rates need two readings, but there is only one: try again")
            time.sleep(POLL_S / 10)

    def _place(self, name: str) -> str:
        """Return weft's name of a port from UFM's name."""
        reading = self._monitor.latest().reading
        for row in _rows(reading):
            if row.name == name:
                return reading.ports.name(row.slot)
        raise UnknownName("cabled port", name[:80], ())

    @staticmethod
    def _ports(picture: Picture, change: Change) -> Iterator[tuple[_Row, Port]]:
        for row in _rows(change):
            port = picture.named(row.name)
            if port is not None:
                yield row, port


def _rows(of: Reading | Change) -> Iterator[_Row]:
    """Yield the ports that have, or had, a cable; a switch's management port has none."""
    fabric = of.ports.fabric
    nodes, ports = fabric.nodes, fabric.ports
    for slot in np.flatnonzero(of.ports.is_polled & (of.ports.number > 0)).tolist():
        node = int(ports.node[slot])
        guid = int(nodes.guid[node])
        yield _Row(slot, guid, int(ports.guid[slot]) or guid, int(of.ports.number[slot]))


def _bandwidth(change: Change) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bytes per second that each port sends and receives."""
    columns = (find_counter("PortXmitDataExtended").column, find_counter("PortRcvDataExtended").column)
    sent, received = (change.delta[:, column] * _WORD_BYTES / change.seconds for column in columns)
    return sent, received


def _congestion(change: Change) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the percentage of time in which each port, and its peer, waited for credits."""
    waiting = health([change]).wait_share * 100
    peer = change.ports.peer
    return waiting, np.where(peer >= 0, waiting[peer], 0.0)


def _by_system(
    ports: Iterable[tuple[_Row, Port]], column: NDArray[np.float64], join: Any
) -> Iterator[tuple[str, str, float]]:
    slots: dict[tuple[str, str], list[int]] = {}
    for row, port in ports:
        slots.setdefault((port.system_id, port.system_name), []).append(row.slot)
    for (guid, name), some in slots.items():
        yield guid, name, float(join(column[some]))


def _ranked(entries: Iterable[tuple[str, str, float]]) -> list[dict[str, Any]]:
    ranked = sorted(entries, key=lambda entry: -entry[2])[:_TOP]
    return [{"name": name, "description": words, "value": round(value, 3)} for name, words, value in ranked]


def _one_of(name: str, word: str, choices: Mapping[str, Any]) -> Any:
    if word not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, got {word[:40]}")
    return choices[word]


def read_list(words: str) -> list[str]:
    """Read `[a,b]`, as UFM's clients write a list in a query."""
    return [word.strip(" '\"") for word in words.strip("[] ").split(",") if word.strip(" '\"")]


def read_ago(words: str) -> float:
    """Read `-1h` or `-5min` as seconds before now."""
    match = _AGO.fullmatch(words)
    if match is None:
        raise ConfigError(f"expected a time before now, such as -1h, -5min or -30s, got {words[:40]!r}")
    return float(match[1]) * _UNITS_S[match[2]]


def _without_port(description: str) -> str:
    """Remove the port number from the description of a switch port: `leaf1:3`."""
    return re.sub(r":\d+$", "", description)


_MOST = 100
_Name = Annotated[str, msgspec.Meta(max_length=100)]


class RequestedPorts(msgspec.Struct, kw_only=True):
    """The requested ports of a node."""

    guid: _Name  # node GUID
    ports: Annotated[list[int], msgspec.Meta(max_length=1000)]


class InstanceOrder(msgspec.Struct, kw_only=True):
    """A request for an instance. Its sampling interval is ignored: the monitor samples once a second."""

    counters: Annotated[list[_Name], msgspec.Meta(max_length=500)] | None = None
    requested_guids: Annotated[list[RequestedPorts], msgspec.Meta(max_length=100_000)] | None = None
    sample_rate: float | None = None
    configuration: dict[str, Any] = {}
    base_config: str = ""
    ttl: str = ""
    is_registered_discovery: bool = False
    is_async: bool = False


class Instances:
    """The running instances by name."""

    def __init__(self) -> None:
        self._started: dict[str, InstanceOrder] = {}

    def put(self, name: str, order: InstanceOrder) -> None:
        """Start or change an instance; a request without counters or ports keeps the current ones."""
        before = self._started.get(name)
        if before is None and len(self._started) >= _MOST:
            raise ConflictError(f"there are {_MOST} telemetry instances already: delete one first")
        if before is not None:
            order.counters = before.counters if order.counters is None else order.counters
            order.requested_guids = before.requested_guids if order.requested_guids is None else order.requested_guids
        _selection(order)
        self._started[name] = order

    def remove(self, name: str) -> None:
        self._started.pop(self._check(name))

    def selection(self, name: str) -> Selection:
        return _selection(self._started[self._check(name)])

    def names(self) -> list[str]:
        return list(self._started)

    def _check(self, name: str) -> str:
        if name not in self._started:
            raise NotFoundError(f"there is no telemetry instance {name[:100]!r}")
        return name


def _selection(order: InstanceOrder) -> Selection:
    counters = COUNTERS if order.counters is None else tuple(find_counter(name) for name in order.counters)
    if order.requested_guids is None:
        return Selection(counters)
    names = (
        f"{requested.guid.removeprefix('0x')}_{port}" for requested in order.requested_guids for port in requested.ports
    )
    return Selection(counters, frozenset(names))
