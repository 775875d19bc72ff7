"""`weft cables`: the modules of cables in a running subnet."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import TABLES, Form
from weft.cli.output import console, print_data, progress_bar, table
from weft.cli.subnets import THE_LAB, Subnet
from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.monitor.cables import CableEnd
    from weft.monitor.ports import Ports


def cables(name: str = "", /, *, subnet: Subnet = THE_LAB, form: Form = TABLES) -> None:
    """List the cables of a subnet: serial, temperature, power.

    They are read from the modules by CableInfo, which devices of NVIDIA have.

    Parameters
    ----------
    name
        A port, for both ends of its cable, or a node. [all]
    """
    from contextlib import closing

    from weft.monitor.cables import read_end

    poller = subnet.new_poller()
    with closing(poller.carrier) as carrier, progress_bar("reading modules") as step:
        ports = poller.poll().ports
        slots = _slots(ports, name)
        ends = []
        for number, slot in enumerate(slots):
            step(completed=number, total=len(slots))
            ends.append(read_end(carrier, ports, slot))
    if form.is_data:
        print_data(form, [_facts(end) for end in ends])
        return
    heads = ("port", "module", "serial", "m", "C", "V", "receives dBm", "sends dBm", "bias mA")
    console().print(table("Cables", heads, [_row(end) for end in ends], "Powers are those of the weakest lane."))


def _slots(ports: Ports, name: str) -> list[int]:
    from weft.fabric.views import Node, Port

    cabled: list[int] = (ports.peer >= 0).nonzero()[0].tolist()
    if not name:
        return cabled
    place = ports.fabric[name]
    if isinstance(place, Port):
        peer = int(ports.peer[place.slot])
        return [place.slot] if peer < 0 else [place.slot, peer]
    if isinstance(place, Node):
        return [slot for slot in cabled if ports.fabric.ports.node[slot] == place.index]
    raise ConfigError(f"{name} is not a port or a node: give one as `weft show` names it")


def _row(end: CableEnd) -> tuple[Any, ...]:
    module = end.module
    if module is None:
        return (end.port, end.reason, *[None] * 7)
    temperature = None if module.temperature_c is None else round(module.temperature_c, 1)
    powers = [_weakest(lanes) for lanes in (module.receive_mw, module.transmit_mw)]
    bias = round(sum(module.bias_ma) / len(module.bias_ma), 1) if module.bias_ma else None
    title = f"{module.form} {module.technology}"
    return (end.port, title, module.serial, module.length_m, temperature, module.supply_v, *powers, bias)


def _weakest(lanes: tuple[float, ...]) -> float | str | None:
    from weft.monitor.cables import milliwatts_to_dbm

    if not lanes:
        return None
    power = milliwatts_to_dbm(min(lanes))
    return "no light" if power is None else power


def _facts(end: CableEnd) -> dict[str, Any]:
    """Return a cable end with its module's fields beside the port."""
    module = {} if end.module is None else asdict(end.module)
    return {"port": end.port, "peer": end.peer, "reason": end.reason} | module
