"""Traffic by name, and the routes that it takes: shared by `weft.simulate` and `weft sim`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.api.arguments import FabricLike, read_fabric, read_number, read_size_bytes, read_text, read_whole
from weft.api.routes import Dumps, has_routes, read_routed
from weft.errors import ConfigError, UnknownName, find_named
from weft.fabric.model import Fabric
from weft.sim.files import is_traffic_file, read_traffic
from weft.sim.patterns import PATTERNS, USUAL_BYTES, make, parameters_of
from weft.sim.traffic import Operation, Traffic, Transport

if TYPE_CHECKING:
    from weft.sim.engine import Options

_FLAGS = {"size_bytes": "--size", "duration_ps": "--duration-us"}


def read_ps(flag: str, us: float) -> int:
    """Return microseconds in picoseconds."""
    if not 1e-6 <= us <= 1e9:
        raise ConfigError(f"{flag} {us:g} is not from 0.000001 to 1,000,000,000 microseconds")
    return round(us * 1e6)


def read_parameters(
    *,
    size: int | str | None = None,
    load: float | None = None,
    duration_us: float | None = None,
    senders: int | None = None,
    receiver: str | None = None,
    distance: int | None = None,
    sl: int | None = None,
    operation: str | None = None,
    transport: str | None = None,
) -> dict[str, Any]:
    """Return the parameters that are not None, as a traffic pattern takes them."""
    whole = {"senders": senders, "distance": distance, "sl": sl}
    parameters: dict[str, Any] = {
        name: read_whole(f"--{name}", value) for name, value in whole.items() if value is not None
    }
    if load is not None:
        parameters["load"] = read_number("--load", load)
    if receiver is not None:
        parameters["receiver"] = read_text("--receiver", receiver)
    if size is not None:
        parameters["size_bytes"] = read_size_bytes(size)
    if duration_us is not None:
        parameters["duration_ps"] = read_ps("--duration-us", read_number("--duration-us", duration_us))
    for kinds, name in ((Operation, operation), (Transport, transport)):
        if name is not None:
            kind = kinds.__name__.lower()
            parameters[kind] = find_named(kind, str(name), {each.name.lower(): each for each in kinds})
    return parameters


def check_traffic(name: str, parameters: dict[str, Any]) -> None:
    """Raise ConfigError if there is no such traffic, or if it does not take these parameters."""
    taken = ("size_bytes",) if ":" in name else parameters_of(name) if name in PATTERNS else ()
    if ":" not in name and name not in PATTERNS:
        if not is_traffic_file(name):
            hint = "A traffic file has a name that ends in .csv, .json or .cm; a collective is written all_reduce:ring."
            raise UnknownName("traffic", name, PATTERNS, hint)
        if parameters:
            flags = ", ".join(_FLAGS.get(parameter, f"--{parameter}") for parameter in parameters)
            raise ConfigError(f"{name} defines all of its messages: leave out {flags}")
        return
    for parameter in parameters:
        if parameter not in taken:
            *others, last = (other for other in PATTERNS if parameter in parameters_of(other))
            whose = f"{', '.join(others)} and {last}" if others else last
            raise ConfigError(f"{_FLAGS.get(parameter, f'--{parameter}')} is for {whose} traffic, not for {name}")


def make_traffic(name: str, fabric: Fabric, parameters: dict[str, Any], seed: int) -> Traffic:
    """Return the traffic of a pattern, a collective such as `all_reduce:ring`, or a file."""
    if ":" in name:
        from weft.collectives.traffic import collective_traffic

        collective, _, algorithm = name.partition(":")
        return collective_traffic(fabric, collective, algorithm, parameters.get("size_bytes", USUAL_BYTES))
    if name not in PATTERNS:
        return read_traffic(name, fabric)
    return make(name, fabric, **parameters, **({"seed": seed} if "seed" in parameters_of(name) else {}))


def route_traffic(
    fabric: FabricLike,
    options: Sequence[Options],
    *,
    tables: Dumps = None,
    routing_engine: str | None = None,
    lmc: int | None = None,
    traffic: object = "",
) -> tuple[Fabric, str]:
    """Return the fabric with tables for runs with these options, and the origin of the tables in words.

    A collective, such as the traffic `all_reduce:ring`, also uses the links between GPUs inside servers.
    """
    from weft.fabric.nvlink import join_nvlinks
    from weft.routing.engine import Options as RoutingOptions
    from weft.routing.route import route
    from weft.sim.adaptive import require_choice

    if tables is not None and routing_engine is not None:
        raise ConfigError("--tables brings its own routes: leave out --routing-engine, or --tables")
    if lmc is not None and not any(each.paths == "lmc" for each in options):
        raise ConfigError("--lmc adds LIDs that only --paths lmc uses: add it, or leave out --lmc")
    routed, lanes_known = read_routed(read_fabric(fabric), tables=tables)
    if has_routes(routed) and routing_engine is None and lmc is None:
        lanes = "" if lanes_known else ", lanes unknown: all paths share one"
        origin = f"tables of {tables or routed.spec}{lanes}"
    elif not routed.switches:
        origin = "no switch to route"
    elif tables is not None:
        raise ConfigError("--tables brings its own LIDs: leave out --lmc, or --tables")
    else:
        routing = route(routed, RoutingOptions(engine=routing_engine or "auto", adaptive=True, lmc=lmc or 0))
        routed, origin = routing.fabric, f"routed by {routing.engine}"
    for each in options:
        if each.paths is not None:
            require_choice(routed, each.paths)
    return join_nvlinks(routed) if isinstance(traffic, str) and ":" in traffic else routed, origin
