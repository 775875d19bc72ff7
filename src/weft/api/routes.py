"""Compute forwarding tables, prove them, measure them, and follow them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.api.arguments import FabricLike, PathLike, read_fabric, read_names, read_path, read_text, read_whole
from weft.errors import ConfigError, find_named
from weft.fabric.model import Fabric
from weft.routing.engine import Options
from weft.routing.route import Routing, reroute
from weft.routing.route import route as route_fabric
from weft.training.failures import break_permanently

if TYPE_CHECKING:
    from weft.routing.check import TableCheck
    from weft.routing.quality import Quality
    from weft.routing.subnets import SubnetsCheck
    from weft.routing.trace import Trace

Dumps = PathLike | None


def route(
    fabric: FabricLike,
    *,
    routing_engine: str = "auto",
    lmc: int = 0,
    max_vls: int = 8,
    root: str = "",
    adaptive: bool = False,
    fault: str | Sequence[str] = (),
) -> Routing:
    """Compute the forwarding tables of a fabric, as `weft route` does.

    Parameters
    ----------
    fabric
        A fabric, its spec, or the path of a file.
    routing_engine
        `auto`, `dimension-order`, `dragonfly`, `fat-tree`, `dfsssp`, `up-down` or `min-hop`.
    lmc
        Every host port gets 2**lmc LIDs and as many paths.
    max_vls
        Data lanes of the ports.
    root
        The root switch of up/down; by default the engine chooses.
    adaptive
        Also compute groups of ports for adaptive routing.
    fault
        One or several faults afterwards, `cut:leaf1/3`, `slow:leaf1/3=4xHDR` or `dead:spine1`: the fabric is routed
        again with few changes, which `changed_entries` counts.

    Returns
    -------
    Routing
        The routed `fabric`, the `engine` that was used, and `notes` with the reasons.

    Examples
    --------
    >>> routing = weft.route("fat-tree:hosts=16,radix=8")
    >>> routing.engine
    'fat-tree'
    >>> weft.route("fat-tree:hosts=16,radix=8", fault="dead:spine1").changed_entries
    30
    """
    options = Options(
        engine=read_text("--routing-engine", routing_engine),
        lmc=read_whole("lmc", lmc),
        max_vls=read_whole("max_vls", max_vls),
        root=read_text("--root", root),
        adaptive=adaptive,
    )
    routing = route_fabric(read_fabric(fabric), options)
    faults = [each for each in read_names("--fault", fault).split(",") if each]
    return reroute(break_permanently(routing.fabric, faults), routing) if faults else routing


def check(
    fabric: FabricLike, *, tables: Dumps = None, hosts_only: bool = False, paths: str = "table"
) -> TableCheck | SubnetsCheck:
    """Prove that forwarding tables lead everywhere and cannot deadlock, as `weft check` does.

    Parameters
    ----------
    fabric
        A routing, a fabric with tables, its spec, or the path of a file.
    tables
        Tables of OpenSM to check instead: a folder of its dumps, or one file of routes.
    hosts_only
        Only paths between adapters, as ibdmchk does; by default also those from and to switches.
    paths
        `table`; or `valiant`, `ugal` or `par`: with all paths through intermediate switches, as `weft.simulate` takes
        them.

    Returns
    -------
    TableCheck
        `ok`, the number of `pairs` and of those that `arrived`, the `credit_loop` if there is one; `explain()` says
        the same in words. For several subnets joined by routers a `SubnetsCheck`: a `TableCheck` for each, and the
        `router_loop` if packets can wait for each other across routers.

    Examples
    --------
    >>> weft.check(weft.route("fat-tree:hosts=16,radix=8")).ok
    True
    >>> result = weft.check(weft.route("torus:5x5", routing_engine="min-hop"))
    >>> result.ok, len(result.credit_loop)
    (False, 4)
    >>> result = weft.check(weft.route("torus:5x5"), paths="ugal")
    >>> result.ok, result.vls
    (True, 4)
    """
    from weft.fabric.subnets import subnets_of
    from weft.routing.check import check as check_tables
    from weft.routing.detours import Detour
    from weft.routing.subnets import check_subnets

    if tables is None and len(subnets_of(whole := read_fabric(fabric))) > 1:
        if paths != "table":
            raise ConfigError(f"--paths {paths} works on one subnet: leave it out")
        return check_subnets(whole, hosts_only=hosts_only)
    routed, lanes_known = read_routed(fabric, tables=tables)
    if not has_routes(routed):
        raise ConfigError(
            f"{routed.spec} has no forwarding tables"
            "\n  Give OpenSM's with --tables; `weft route` computes and verifies its own."
        )
    kinds = {"table" if kind is Detour.NONE else kind.name.lower(): kind for kind in Detour}
    detour = find_named("choice of paths", read_text("--paths", paths), kinds)
    return check_tables(routed, hosts_only=hosts_only, lanes_known=lanes_known, detour=detour)


def rate(fabric: FabricLike, *, seed: int = 1) -> Quality:
    """Measure the load of links and the bisection bandwidth of a routed fabric, as `weft route` prints them.

    Parameters
    ----------
    fabric
        A routing, or a fabric, its spec or the path of a file; without tables it is routed first.
    seed
        Random seed of the bisections and of the sample of shifts in large fabrics.

    Returns
    -------
    Quality
        The load of several `patterns` with the worst link of each, all `shifts`, and the effective `bisection`
        bandwidth.

    Examples
    --------
    >>> quality = weft.rate("fat-tree:hosts=16,radix=8")
    >>> quality.all_to_all.max_load, quality.all_to_all.slowdown
    (12.0, 1.0)
    """
    from weft.routing.patterns import host_ports
    from weft.routing.quality import measure

    routed, _ = read_routed(fabric, engine="auto")
    if len(host_ports(routed)) < 2:
        raise ConfigError(f"{routed.spec} has fewer than two hosts, so there is no traffic to measure")
    return measure(routed, seed=read_whole("seed", seed))


def path(
    fabric: FabricLike, source: str, destination: str, *, tables: Dumps = None, routing_engine: str | None = None
) -> tuple[Trace, ...]:
    """Follow the packets between two hosts, there and back, as `weft path` does.

    Parameters
    ----------
    fabric
        A routing, or a fabric, its spec or the path of a file; without tables it is routed first.
    source
        A server, an adapter or a port of one: `h1`, `dgx1/mlx5_0`, `h1/1`.
    destination
        The same.
    tables
        Tables of OpenSM to follow: a folder of its dumps, or one file of routes.
    routing_engine
        Route the fabric with this engine, whatever tables it has.

    Returns
    -------
    tuple of Trace
        A trace for each LID of the destination, then those of the way back: `hops`, and whether it `arrived`.

    Examples
    --------
    >>> there, back = weft.path("fat-tree:hosts=16,radix=8", "h1", "h16")
    >>> [hop.port for hop in there.hops]
    ['h1/1', 'leaf1/5', 'spine1/7', 'leaf4/4']
    """
    from weft.routing.trace import trace
    from weft.sim.traffic import find_host_port

    if tables is not None and routing_engine is not None:
        raise ConfigError("--tables brings its own routes: leave out --routing-engine, or --tables")
    routed, _ = read_routed(fabric, tables=tables, engine=routing_engine or "auto", again=routing_engine is not None)
    ends = (
        find_host_port(routed, read_text("source", source)),
        find_host_port(routed, read_text("destination", destination)),
    )
    return (*trace(routed, *ends), *trace(routed, *ends[::-1]))


def read_routed(
    fabric: FabricLike, *, tables: Dumps = None, engine: str = "", adaptive: bool = False, again: bool = False
) -> tuple[Fabric, bool]:
    """Return a fabric with its tables, and whether its virtual lanes are known.

    The tables are those of a dump, its own, or those of this engine, which replace its own with `again`. Without a
    dump, tables or an engine the fabric is returned as it is.
    """
    from weft.fabric.files.opensm_tables import read_tables

    read = read_fabric(fabric)
    if tables is not None:
        filled = read.configured(read.tables.unrouted())
        return filled, read_tables(read_path("--tables", tables), filled)
    if engine and (again or not has_routes(read)):
        read = route_fabric(read, Options(engine=engine, adaptive=adaptive)).fabric
    return read, True


def has_routes(fabric: Fabric) -> bool:
    """Return whether a fabric has forwarding tables."""
    return "lft" in vars(fabric.tables)
