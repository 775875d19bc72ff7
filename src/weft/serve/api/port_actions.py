"""Switch ports off and on, and clear counters, by MADs: on labs and on other fabrics."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from weft.diags.port_actions import clear_counters, set_physical_state
from weft.diags.query import own_lid
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.views import Node, Port
from weft.monitor.ports import Ports
from weft.serve.api.exchange import ask_fabric, caller_of, change, gives
from weft.serve.console.monitor import FabricMonitor
from weft.serve.console.routes import monitor_of, not_tenants, operators_only
from weft.serve.desired import ConflictError
from weft.wire.perf import ALL_PORTS
from weft.wire.port_info import PortPhysicalState

_STATES = {"disable": PortPhysicalState.DISABLED, "enable": PortPhysicalState.POLLING}

router = APIRouter(tags=["port actions"], dependencies=[Depends(not_tenants), Depends(operators_only)])


class PortOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A port of a switch to switch off or on."""

    port: str
    do: Literal["disable", "enable"]


class ClearOrder(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The counters to clear."""

    name: str = ""  # a port or a node; "": of the whole fabric


@router.post("/portstate", **gives(None, 400, 403, 409, 422, 504, takes=PortOrder, status=204))
async def set_port_state(request: Request) -> Response:
    """Switch a port of a switch off or on, as `ibportstate` does; the link goes down, its cable stays."""
    order, monitor = msgspec.json.decode(await request.body(), type=PortOrder), monitor_of(request)
    await change(request, lambda _: None)  # adds the request to the audit log
    await ask_fabric(request, lambda: _set_state(monitor, order))
    monitor.log("port", f"{caller_of(request).name}: {order.do} {order.port}")
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/counters/clear", **gives(None, 400, 403, 422, 504, takes=ClearOrder, status=204))
async def clear(request: Request) -> Response:
    """Set the counters of a port, of a node or of the whole fabric to zero, as `perfquery -R` does."""
    order, monitor = msgspec.json.decode(await request.body(), type=ClearOrder), monitor_of(request)
    await change(request, lambda _: None)
    await ask_fabric(request, lambda: _clear(monitor, order.name))
    monitor.log("counters", f"{caller_of(request).name}: cleared at {order.name or 'all ports'}")
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _set_state(monitor: FabricMonitor, order: PortOrder) -> None:
    ports = monitor.latest().reading.ports
    port = ports.fabric.find_port(order.port)
    if port.node.kind != NodeKind.SWITCH or not port.number:
        raise ConfigError(f"{order.port} is not a port of a switch: give the switch's end of the cable")
    with monitor.ask() as carrier:
        peer = int(ports.peer[port.slot])
        if order.do == "disable" and peer >= 0 and int(ports.lid[peer]) == own_lid(carrier):
            raise ConflictError(f"{order.port} leads to the port of this service: it could not be enabled again")
        set_physical_state(carrier, int(ports.lid[port.slot]), port.number, _STATES[order.do])


def _clear(monitor: FabricMonitor, name: str) -> None:
    ports = monitor.latest().reading.ports
    with monitor.ask() as carrier:
        for lid, number in _targets(ports, name):
            clear_counters(carrier, lid, number)


def _targets(ports: Ports, name: str) -> list[tuple[int, int]]:
    """Return LID and port number of each port, 255 for all ports of a switch."""
    place = ports.fabric[name] if name else None
    if isinstance(place, Port):
        return [(int(ports.lid[place.slot]), place.number)]
    if not (place is None or isinstance(place, Node)):
        raise ConfigError(f"{name} is not a port or a node: give leaf1/5, leaf1, or nothing for the whole fabric")
    chosen = ports.is_polled if place is None else ports.is_polled & (ports.fabric.ports.node == place.index)
    targets = dict.fromkeys(
        (int(ports.lid[slot]), ALL_PORTS if _is_switch(ports, slot) else int(ports.number[slot]))
        for slot in chosen.nonzero()[0].tolist()
    )
    return list(targets)


def _is_switch(ports: Ports, slot: int) -> bool:
    return bool(ports.fabric.nodes.kind[ports.fabric.ports.node[slot]] == NodeKind.SWITCH)
