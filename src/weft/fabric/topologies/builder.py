"""A fabric builder for chosen hardware: one switch model, one line speed, one server template.

Defaults follow from the given parameters: the switch is the first in the catalog with the given `speed`, or else with
the speed of the server's adapter; switch links run at the switch's speed, or at the adapter's if the cages of the
switch split into more ports of that speed (an SN5600 has 64 ports of 800GbE or 128 of 400GbE); a server's link runs at
the slower of its two ends. A given `speed` applies to every link, or is an error. Cables have the lengths below, which
are typical of rows of racks, and the cheapest medium that reaches.

With `planes=4` an adapter port is four ports of a quarter of its rate, one in each of four independent, identical
networks (`weft.fabric.planes`). The builder cables one of them: its switches are single chips of a box that has one for
each plane (a Q3400), or whole switches whose cages split into ports of that rate (an SN5400: 128 × 200GbE).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, TypedDict, Unpack

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.build import MAX_INFINIBAND_PORTS, MAX_PORTS, FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Speed, Technology, parse_label, speeds
from weft.fabric.servers import add_servers

HOST_M = 3.0  # server to the switch in its rack
ROW_M = 10.0  # leaf to spine; between the switches of a group
HALL_M = 30.0  # spine to core; between the groups of a dragonfly

MAX_PORTS_IN_ALL = 10_000_000  # half a gigabyte, without tables and counters

ServerName = Annotated[str, "server template in the catalog"]
HostsPerSwitch = Annotated[int, "servers on each switch"]
Dims = Annotated[tuple[int, ...], "size of each dimension"]


class Switching(TypedDict, total=False):
    """The options of every topology for its switches."""

    switch: Annotated[str | None, "switch model in the catalog; else the first with that speed"]
    radix: Annotated[int | None, "ports of a switch, in place of the catalog's"]
    speed: Annotated[str | None, "line speed such as EDR or 2xHDR; else the switch's"]
    breakout: Annotated[int | None, "ports that each port of a switch splits into; else as the adapters need"]
    planes: Annotated[int | None, "planes of each adapter port: independent networks of equal switches"]


class Builder(FabricBuilder):
    """A collector of switches, servers and cables of chosen hardware; `build` checks them and returns the fabric."""

    def __init__(self, name: str, *, server: str, takes_director: bool = False, **switching: Unpack[Switching]) -> None:
        super().__init__(name)
        switch, radix, speed = switching.get("switch"), switching.get("radix"), switching.get("speed")
        self.planes = switching.get("planes") or 1
        self.template = catalog.server(server)
        adapter = self.template.adapter
        line = parse_label(speed) if speed else None
        self.switch = _find_switch(switch, takes_director) if switch else _choose_switch(line or adapter.line, adapter)
        adapter = plane_adapter(adapter, self.planes)
        split = _split_line(self.switch, switching.get("breakout"))
        if line and split and line != split:
            raise ConfigError(
                f"{name}: speed={speed} and breakout={switching.get('breakout')} are two speeds: leave out one"
            )
        self.line = line or split or line_of(self.switch, adapter, self.planes)
        if self.planes > 1 and not radix:
            check_planes(self.switch, self.line, self.planes)
        self.radix = radix or self.switch.ports_at(Speed.label(*self.line))
        if self.radix > self.most_ports:
            raise ConfigError(
                f"{name}: radix={radix} is more ports than a switch can have: at most {MAX_PORTS:,}, "
                f"or {MAX_INFINIBAND_PORTS} of InfiniBand"
            )
        self.host_line = _host_line(self.line, adapter)
        if line and self.host_line != line:
            fitting = [template.name for template in catalog.servers() if _can(template.adapter, line)]
            raise ConfigError(
                f"{name}: {adapter.name} in {server} runs at {adapter.label}, not at {line[0].label(line[1])}: "
                f"give server={' or '.join(fitting) or 'NAME'}, or a slower speed"
            )
        if not _runs(self.switch.line, self.line):
            raise ConfigError(
                f"{name}: {self.switch.name} runs at {self.switch.label}, not at {speed}: give another switch or speed"
            )

    def build(self) -> Fabric:
        return replace(super().build(), planes=self.planes)

    @property
    def rails(self) -> int:
        """The switch ports of a server: one for each of its compute adapters."""
        return self.template.rails

    @property
    def most_ports(self) -> int:
        """The most ports of a switch: port numbers of InfiniBand are bytes."""
        return MAX_INFINIBAND_PORTS if self.line[0].technology is Technology.INFINIBAND else MAX_PORTS

    def check_size(self, switches: int, hosts: int) -> None:
        """Raise ConfigError for a fabric that is too large for memory, before building it."""
        ports = switches * self.radix + hosts * self.rails
        if ports > MAX_PORTS_IN_ALL:
            raise ConfigError(
                f"{self.spec}: {switches:,} switches and {hosts:,} servers have {ports:,} ports: "
                f"weft builds up to {MAX_PORTS_IN_ALL:,}"
            )

    def check_ports(self, needed: int, purpose: str) -> None:
        """Raise ConfigError if a switch has fewer ports than its place in the topology needs."""
        if needed > self.radix:
            raise ConfigError(
                f"{self.spec}: a switch needs {needed:,} ports ({purpose}), {self.switch.name} has {self.radix}: "
                "give smaller numbers, a larger switch, or radix=N"
            )

    def add_switches(self, names: Sequence[str], *, group: ArrayLike = -1) -> NDArray[np.int32]:
        return self.add_nodes(
            NodeKind.SWITCH,
            names,
            n_ports=self.radix,
            model=self.switch.name,
            vendor_id=self.switch.vendor_id,
            device_id=self.switch.device_id,
            group=group,
        )

    def add_hosts(self, count: int, *, group: ArrayLike = -1) -> NDArray[np.int32]:
        """Add servers of the template; return their compute adapters [server, rail]. Storage adapters have no cable."""
        name = self.template.name
        plain = "server" if catalog.is_template_file(name) else name.partition("-")[0]
        prefix = "nvl" if self.template.is_rack else "h" if self.template.box == "host" else plain
        return add_servers(self, self.template.name, number(prefix, count), group=group).compute

    def add_leaves(
        self, names: Sequence[str], hosts: int, *, first_port: int = 1, group: ArrayLike = -1
    ) -> NDArray[np.int32]:
        """Add switches with `hosts` servers on each, cabled from port `first_port` up; return the switches."""
        ports = hosts * self.rails
        adapters = self.add_hosts(hosts * len(names), group=np.repeat(np.broadcast_to(group, len(names)), hosts))
        switches = self.add_switches(names, group=group)
        self.plug_hosts(adapters.reshape(-1, ports), switches[:, None], np.arange(first_port, first_port + ports))
        return switches

    def plug_hosts(self, adapters: ArrayLike, switches: ArrayLike, ports: ArrayLike) -> None:
        """Add cables from port 1 of each adapter to a port of a switch."""
        self._cable(adapters, 1, switches, ports, self.host_line, HOST_M, "adapters")

    def connect(
        self,
        a: ArrayLike,
        a_port: ArrayLike,
        b: ArrayLike,
        b_port: ArrayLike,
        length_m: float,
        line: tuple[Speed, int] | None = None,
    ) -> None:
        """Add cables between switches; switches and ports are broadcast against each other."""
        self._cable(a, a_port, b, b_port, line or self.line, length_m, "switches")

    def connect_all(self, cliques: NDArray[np.int32], first_port: int, length_m: float) -> None:
        """Connect each row of switches all-to-all: ports to the others are in their order, from `first_port` up."""
        low, high = np.triu_indices(cliques.shape[1], 1)
        self.connect(cliques[:, low], first_port + high - 1, cliques[:, high], first_port + low, length_m)

    def _cable(
        self,
        a: ArrayLike,
        a_port: ArrayLike,
        b: ArrayLike,
        b_port: ArrayLike,
        line: tuple[Speed, int],
        length_m: float,
        joins: catalog.Joins,
    ) -> None:
        speed, width = line
        medium = catalog.cable_for(speed.label(width), length_m, joins, [self.switch.cage]).medium
        self.add_links(a, a_port, b, b_port, line, medium=medium, length_m=length_m)


def line_of(switch: catalog.Switch, adapter: catalog.Adapter, planes: int = 1) -> tuple[Speed, int]:
    """Return the speed and width of a switch's ports: the adapter's share of a plane, or where cages split to that."""
    host_line = _host_line(switch.line, adapter)
    return host_line if planes > 1 or Speed.label(*host_line) in switch.breakout else switch.line


def ports_for(switch: catalog.Switch, adapter: catalog.Adapter, planes: int = 1, breakout: int | None = None) -> int:
    """Return the ports of a switch that joins such adapters, in each of so many planes, or split into `breakout`."""
    line = _split_line(switch, breakout) or line_of(switch, plane_adapter(adapter, planes), planes)
    if planes > 1:
        check_planes(switch, line, planes)
    return switch.ports_at(Speed.label(*line))


def plane_adapter(adapter: catalog.Adapter, planes: int) -> catalog.Adapter:
    """Return the share of an adapter in one plane: `1xXDR` of a ConnectX-8 with four, `200GbE` of a 400GbE with two."""
    if planes == 1:
        return adapter
    speed, width = adapter.line
    if len(speed.widths) > 1:
        if width % planes == 0 and width // planes in speed.widths:
            return msgspec.structs.replace(adapter, speed=speed.label(width // planes))
        rule = f"its {width} lanes divide into {', '.join(str(n) for n in (1, 2, 4) if width % n == 0)}"
    else:
        rates = {s.rate_gbit_s(): s for s in speeds() if s.technology is speed.technology}
        if (share := rates.get(adapter.rate_gbit_s / planes)) is not None:
            return msgspec.structs.replace(adapter, speed=share.name)
        able = [n for n in (1, 2, 4, 8) if adapter.rate_gbit_s / n in rates]
        rule = f"its ports split into {', '.join(map(str, able))}"
    raise ConfigError(f"planes={planes} do not divide a {adapter.name} of {adapter.label}: {rule}")


def check_planes(switch: catalog.Switch, line: tuple[Speed, int], planes: int) -> None:
    """Raise ConfigError if a switch has no ports of a plane's speed, and no chip for each plane."""
    if switch.planes == planes or Speed.label(*line) in switch.breakout:
        return
    raise ConfigError(
        f"planes={planes} need ports of {Speed.label(*line)}, and {switch.name} has {switch.summary}: "
        "give another switch or another number of planes, or radix=N"
    )


def _split_line(switch: catalog.Switch, breakout: int | None) -> tuple[Speed, int] | None:
    """Return the speed of a switch whose ports are split into so many; None without a number."""
    if breakout is None:
        return None
    for speed, ports in {switch.speed: switch.ports, **switch.breakout}.items():
        if ports == switch.ports * breakout:
            return parse_label(speed)
    raise ConfigError(f"breakout={breakout}: {switch.name} has {switch.summary}: give a breakout that it has")


def number(prefix: str, count: int) -> list[str]:
    """Return `leaf1`, `leaf2`, ..."""
    return [f"{prefix}{i}" for i in range(1, count + 1)]


def _find_switch(name: str, takes_director: bool) -> catalog.Switch:
    """Return the switch of that name; raise ConfigError for a director where the topology does not take one."""
    switch = catalog.switch(name)
    if switch.chassis and not takes_director:
        chip, others = switch.device_id, catalog.switches()
        boxes = ", ".join(other.name for other in others if other.device_id == chip and not other.chassis)
        raise ConfigError(
            f"{switch.name} is a director of {switch.box_ports} ports: weft builds it alone, with all servers on it\n"
            f"  Use star:hosts=N,switch={switch.name}, or a switch with the same chip: {boxes}."
        )
    return switch


def _choose_switch(line: tuple[Speed, int], adapter: catalog.Adapter) -> catalog.Switch:
    """Return the first switch in the catalog with this speed; if there is none, with the adapter's speed."""
    for candidate in (line, adapter.line):
        for switch in catalog.switches():
            if switch.line == candidate:
                return switch
    raise ConfigError(f"the catalog has no switch for {adapter.name} ({adapter.label}): give switch=NAME")


def _runs(fastest: tuple[Speed, int], line: tuple[Speed, int]) -> bool:
    """Return whether a port made for `fastest` can run at `line`."""
    if line[0].technology is not fastest[0].technology:
        return False
    if len(line[0].widths) == 1:  # Ethernet, named by the total rate
        return Speed.rate_gbit_s(*line) <= Speed.rate_gbit_s(*fastest)
    return line[0].lane_gbit_s <= fastest[0].lane_gbit_s and line[1] <= fastest[1]


def _can(adapter: catalog.Adapter, line: tuple[Speed, int]) -> bool:
    """Return whether an adapter can run at a speed. InfiniBand cards can be switched to Ethernet."""
    if (adapter.technology, line[0].technology) == _BOTH_ON_ONE_CARD:
        return Speed.rate_gbit_s(*line) <= adapter.rate_gbit_s
    return _runs(adapter.line, line)


def _host_line(line: tuple[Speed, int], adapter: catalog.Adapter) -> tuple[Speed, int]:
    """Return the common speed of a switch port of `line` and the adapter."""
    technology = line[0].technology
    if _can(adapter, line):
        return line
    if technology is adapter.technology:
        return adapter.line
    if (adapter.technology, technology) != _BOTH_ON_ONE_CARD:
        raise ConfigError(
            f"{adapter.name} supports {adapter.technology}, not {technology} at {line[0].label(line[1])}: "
            "give another server, switch or speed"
        )
    slower = [s for s in speeds() if s.technology is technology and s.rate_gbit_s() <= adapter.rate_gbit_s]
    best = max(slower, key=Speed.rate_gbit_s)
    return best, best.default_width


_BOTH_ON_ONE_CARD = (Technology.INFINIBAND, Technology.ETHERNET)
