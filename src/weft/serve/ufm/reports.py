"""UFM's reports: the health of the fabric, and of the service.

    POST reports/Fabric_Health {"duplicate_nodes": true, "sm_state": true}     202 {"report_id": "1"}
    GET  reports/1                                                            200 {"report": "Fabric_Health", ...}

A report is computed at the request, from the current subnet. Each check lists its errors. Checks that need hardware
(firmware, cable memory, eye openings) are listed as not supported.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weft.errors import ConfigError
from weft.serve.ledger import Ledger
from weft.serve.ufm.jobs import stamp
from weft.serve.ufm.shapes import Picture, Port

FABRIC, SERVICE = "Fabric_Health", "UFM_Health"
_PASSED, _FAILED, _UNSUPPORTED = "passed", "failed", "not supported"
_FULL = 0.9  # used share of a disk


class FabricHealth(msgspec.Struct, kw_only=True):
    """A request for checks, with their options."""

    duplicate_nodes: bool = False
    duplicate_zero_and_lids: bool = False
    non_opt_links: bool = False
    non_opt_speed_width: bool = False
    sm_state: bool = False
    ufm_alarms: bool = False
    health_policy_devices: bool = False
    # Not supported for a fabric in software.
    cables: bool = False
    cable_firmware_mismatch: bool = False
    cpld_version_mismatch_check: bool = False
    effective_ber_check: bool = False
    eye_open: bool = False
    firmware: bool = False
    iblr_ber_events: bool = False
    iblr_links_events: bool = False
    non_opt_aggregated_ports: bool = False
    phy_port_grade: bool = False
    symbol_ber_check: bool = False
    # Options of the checks above.
    cables_errors_only: bool = False
    eye_open_errors_only: bool = False
    link_speed: str = "ALL"
    link_width: str = "ALL"
    map_guids_desc: bool = False
    max_bound: Any = None
    min_bound: Any = None


@dataclass(frozen=True, slots=True)
class Fabric:
    """The input of the checks."""

    picture: Picture
    marked: dict[str, dict[str, Any]]  # ports that are marked as unhealthy
    masters: Sequence[str]  # subnet managers in the state Master
    standby: Sequence[str]


def _check(name: str, errors: Iterable[str]) -> dict[str, Any]:
    details = sorted(errors)
    return {"name": name, "status": _FAILED if details else _PASSED, "errors": len(details), "details": details}


def _same_descriptions(fabric: Fabric) -> Iterable[str]:
    """Return adapters of different systems with the same description. Switches are not checked, as in UFM."""
    nodes = fabric.picture.subnet.nodes
    hosts = [words for words, kind in zip(nodes.description, nodes.kind, strict=True) if kind != "switch"]
    return (f"{words}: {count} nodes" for words, count in Counter(hosts).items() if count > 1)


def _bad_lids(fabric: Fabric) -> Iterable[str]:
    names: dict[int, list[str]] = {}
    for port in fabric.picture.ports:
        if port.logical_state == "Active":
            owner = port.system_id if port.description.startswith("Switch") else port.name
            if owner not in names.setdefault(port.lid, []):
                names[port.lid].append(owner)
    yield from (f"LID 0: {name}" for name in names.get(0, []))
    yield from (f"LID {lid}: {', '.join(some)}" for lid, some in names.items() if lid and len(some) > 1)


def _slow_links(fabric: Fabric) -> Iterable[str]:
    """Yield links below the best speed or width that both ends support."""
    for link in fabric.picture.links:
        ends = [fabric.picture.named(name) for name in link.name.split(":")]
        if None in ends:
            continue
        a, b = (end for end in ends if end is not None)
        speed, width = _best(a.supported_speed, b.supported_speed), _best(a.supported_width, b.supported_width)
        if a.active_speed and (a.active_speed, a.active_width) != (speed, width):
            yield f"{_port(a)} - {_port(b)}: {a.active_width} {a.active_speed} of {width} {speed}"


def _best(some: Sequence[str], supported: Sequence[str]) -> str | None:
    """Return the best value that both support: they are listed from the slowest."""
    return next((value for value in reversed(some) if value in supported), None)


def _managers(fabric: Fabric) -> Iterable[str]:
    if len(fabric.masters) != 1:
        yield f"{len(fabric.masters)} masters{': ' if fabric.masters else ''}{', '.join(fabric.masters)}"


def _alarms(fabric: Fabric) -> Iterable[str]:
    return (f"{alarm['UnhealthyPort']} is unhealthy since {alarm['StatusTime']}" for alarm in fabric.marked.values())


def _port(port: Port) -> str:
    return f"{port.system_name}/{port.dname}"


_CHECKS: dict[str, Callable[[Fabric], Iterable[str]]] = {
    "duplicate_nodes": _same_descriptions,
    "duplicate_zero_and_lids": _bad_lids,
    "non_opt_links": _slow_links,
    "non_opt_speed_width": _slow_links,
    "sm_state": _managers,
    "ufm_alarms": _alarms,
    "health_policy_devices": _alarms,
}
_OPTIONS = ("cables_errors_only", "eye_open_errors_only", "map_guids_desc", "link_speed", "link_width")


def fabric_health(request: FabricHealth, fabric: Fabric) -> dict[str, Any]:
    names = [name for name, value in msgspec.structs.asdict(request).items() if value is True and name not in _OPTIONS]
    if not names:
        raise ConfigError(f"no check requested: set one of {', '.join(_CHECKS)} to true")
    checks = [
        _check(name, _CHECKS[name](fabric)) if name in _CHECKS else {"name": name, "status": _UNSUPPORTED}
        for name in names
    ]
    systems = Counter(system.type for system in fabric.picture.systems)
    summary = {
        "hosts": systems["host"],
        "switches": systems["switch"],
        "links": len(fabric.picture.links),
        "ports": len(fabric.picture.ports),
        "active_ports": sum(port.logical_state == "Active" for port in fabric.picture.ports),
        "masters": list(fabric.masters),
        "standby": list(fabric.standby),
    }
    return _report(FABRIC, checks, summary)


def service_health(ledger: Ledger, trouble: str) -> dict[str, Any]:
    """Return the health of the service: its writer, disk, memory, and connection to the fabric."""
    disk = shutil.disk_usage(os.sep)
    used = 1 - disk.free / disk.total
    checks = [
        _check("ledger", [] if ledger.is_well else ["the ledger's writer has ended: restart the service"]),
        _check("subnet manager", [trouble] if trouble else []),
        _check("disk", [f"the disk is {used:.0%} full"] if used > _FULL else []),
    ]
    load = os.getloadavg()
    summary = {
        "database": ledger.store.title,
        "disk_used_percent": round(100 * used, 1),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "load_average": [round(value, 2) for value in load],
        "processors": os.cpu_count(),
    }
    return _report(SERVICE, checks, summary)


def _report(kind: str, checks: list[dict[str, Any]], summary: Any) -> dict[str, Any]:
    errors = sum(check.get("errors", 0) for check in checks)
    return {
        "report": kind,
        "time": stamp(),
        "status": _FAILED if errors else _PASSED,
        "errors": errors,
        "summary": summary,
        "checks": checks,
    }
