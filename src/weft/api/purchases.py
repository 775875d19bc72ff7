"""Choose, size and price a fabric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.api.arguments import (
    FabricLike,
    PathLike,
    read_fabric,
    read_names,
    read_number,
    read_path,
    read_spec,
    read_whole,
)
from weft.errors import ConfigError
from weft.fabric.prices import Prices, read_prices

if TYPE_CHECKING:
    from weft.compare.outcome import Comparison
    from weft.plan.bill import Bill
    from weft.plan.candidates import Candidate
    from weft.plan.floor.room import Room
    from weft.plan.plan import Plan
    from weft.plan.serving import Demand
    from weft.plan.size import Size

Progress = Callable[[str], None]  # the present step


def compare(
    spec: PathLike,
    job: str = "all_reduce:1G",
    fabrics: str | Sequence[str] | None = None,
    *,
    servers: str | int | Sequence[str] = "",
    prices: PathLike | Prices | None = None,
    seed: int = 1,
    progress: Progress | None = None,
) -> Comparison:
    """Run a job on the same servers over several fabrics, as `weft compare` does.

    Parameters
    ----------
    spec
        A topology with GPU servers, or the path of a file. A Fabric is not enough: each fabric is cabled anew.
    job
        A collective and its size, `all_reduce:1G`; or `trace:FILE` with lines collective,size,count.
    fabrics
        Fabrics of the catalog, as a list or separated by commas: `ndr`, `roce-400`, `eth-100-tcp`, `hdr`, `xdr`, ...
    servers
        The servers that take part, as in `weft.time`.
    prices
        A TOML file with your own prices.
    seed
        Random seed for ECMP hashing.
    progress
        Called with the label of each fabric before its run.

    Returns
    -------
    Comparison
        The `finding` in words, and `outcomes`: `time_us`, `band`, `bound`, `why` and `bill` of each fabric.

    Examples
    --------
    >>> comparison = weft.compare("superpod:su=1,servers=2", "all_reduce:256M", ["ndr", "eth-100-tcp"])
    >>> comparison.fastest.interconnect.name
    'ndr'
    >>> comparison.speedup(comparison.fastest) > 2
    True
    """
    from weft.compare.comparison import compare as run
    from weft.compare.job import parse_job

    names = None
    if fabrics is not None:
        names = [name.strip() for name in read_names("fabrics", fabrics).split(",") if name.strip()]
    return run(
        read_spec(spec),
        parse_job(str(job)),
        names,
        servers=read_names("servers", servers),
        seed=read_whole("seed", seed),
        prices=_read_prices(prices),
        progress=progress,
    )


def plan(
    spec: FabricLike | Size | None = None,
    /,
    *,
    gpus: int | None = None,
    servers: int | None = None,
    server: str | None = None,
    fabric: str | None = None,
    switch: str | None = None,
    topology: str | None = None,
    rails: int | None = None,
    planes: int | None = None,
    breakout: int | None = None,
    oversubscription: float | None = None,
    grow_to: int | None = None,
    ufm_hosts: bool = False,
    room: PathLike | Room | None = None,
    prices: PathLike | Prices | None = None,
    optimise: bool = False,
    train: str | None = None,
    serve: Demand | None = None,
    storage_fabric: str | None = None,
    management_fabric: str | None = None,
    spares: float | None = None,
    lead_weeks: float | None = None,
    failure_rates: PathLike | None = None,
    phases: PathLike | None = None,
    quotes: Sequence[PathLike] = (),
    folder: PathLike | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = lambda step: None,
) -> Plan:
    """Size a cluster, place it in racks, cable it and price it, as `weft plan` does.

    Parameters
    ----------
    spec
        A fabric to plan instead: an object, a topology or the path of a file.
    gpus, servers
        The size of the cluster: one of them.
    server
        The server template, dgx-h100 by default.
    fabric, switch, topology
        The fabric and the switch of the catalog; `superpod`, `fat-tree` or `dragonfly+`.
    rails
        Compute adapters of each server that are cabled; by default all.
    planes
        Planes of each adapter port: independent networks of a share of its rate.
    breakout
        Ports that each port of a switch is split into; by default as adapters need.
    oversubscription
        Server ports per uplink of a leaf, 1 by default.
    grow_to
        A size to reach later without moving a cable, in the unit of the size.
    ufm_hosts
        Reserve the place of one server for two UFM hosts.
    room
        A Room, or a TOML file that describes it.
    prices
        A TOML file with your own prices.
    optimise
        Move switches to reduce the cost of cables.
    train
        Also compute the cost of training this model.
    serve
        Also compute the service that meets this demand, a `weft.plan.serving.Demand`, and its traffic; without a size
        it is the size.
    storage_fabric
        Also plan a storage network: a fabric of the catalog and the number of storage servers, `ndr:16`; with `serve`
        a fabric alone has as many as the model needs.
    management_fabric
        Also plan a management network of this fabric: `eth-100-tcp`.
    spares
        Also compute spare parts, so many that with this probability none runs out: 0.99.
    lead_weeks
        Weeks from order to delivery, for spares and phases; 12 by default.
    failure_rates
        A TOML file with your own failure rates.
    phases
        A TOML file with the dates on which parts of the plan run.
    quotes
        Vendors' quotes, CSV with the columns part, count and unit_usd, to compare with the bills.
    folder
        Write the report, the bill and the list of cables to this folder.
    stop
        Called during `optimise`; True ends the search with the best result so far.
    progress
        Called with the name of each step.

    Returns
    -------
    Plan
        `size` with the fabric and its counts, `racks`, `cabling`, `bill`, `upkeep`; `report()` has all figures.

    Examples
    --------
    >>> plan = weft.plan(gpus=256)
    >>> plan.size.leaf, plan.size.spine
    (8, 4)
    >>> plan.bill.low_usd < plan.bill.high_usd
    True
    """
    from weft.plan.folder import check_folder, write_folder
    from weft.plan.plan import make_plan
    from weft.plan.site import LEAD_WEEKS, Wishes
    from weft.plan.size import Size

    price_list, hall = _read_prices(prices), _read_room(room)
    progress("sizing the fabric")
    options: dict[str, Any] = {"gpus": gpus, "servers": servers, "server": server, "fabric": fabric, "switch": switch}
    options |= {
        "topology": topology,
        "rails": rails,
        "planes": planes,
        "breakout": breakout,
        "oversubscription": oversubscription,
        "grow_to": grow_to,
    }
    sized = spec if isinstance(spec, Size) else size_cluster(spec, options | {"ufm_hosts": ufm_hosts or None}, serve)
    wishes = Wishes(
        storage=storage_fabric,
        management=management_fabric,
        spares=None if spares is None else read_number("--spares", spares),
        lead_weeks=LEAD_WEEKS if lead_weeks is None else read_number("--lead-weeks", lead_weeks),
        failures=None if failure_rates is None else read_path("--failure-rates", failure_rates),
        phases=None if phases is None else read_path("--phases", phases),
        quotes=tuple(read_path("--quote", quote) for quote in quotes),
    )
    target = None if folder is None else read_path("--folder", folder)
    if target is not None:
        check_folder(target)  # before the work, not after it
    result = make_plan(
        sized,
        room=hall,
        prices=price_list,
        model=train,
        demand=serve,
        move=optimise,
        look=True,
        wishes=wishes,
        stop=stop,
        progress=progress,
    )
    if target is not None:
        write_folder(result, target, progress)
    return result


def compare_topologies(
    *, prices: PathLike | Prices | None = None, progress: Progress = lambda step: None, **request: Any
) -> list[Candidate]:
    """Return topologies side by side for the adapters of a request, as `weft plan --compare` prints them."""
    from weft.plan.candidates import compare_topologies as compare_all
    from weft.plan.request import Request

    if request.get("topology") or request.get("grow_to") or request.get("planes") or request.get("breakout"):
        raise ConfigError(
            "--compare looks at all topologies and planes: leave out --topology, --planes, --breakout and --grow-to"
        )
    return compare_all(Request(**request), _read_prices(prices), progress)


def size_cluster(spec: FabricLike | None, options: Mapping[str, Any], serve: Demand | None = None) -> Size:
    """Return the size of a fabric, or of a cluster for the options of a request that are not None.

    Without a number of GPUs or servers it has as many as the service of `serve` needs.
    """
    from weft.plan.request import Request
    from weft.plan.size import boxes_of, count, size

    request = {name: value for name, value in options.items() if value is not None}
    if serve is not None and spec is None and not {"gpus", "servers"} & request.keys():
        from weft.plan.serving import count_servers

        request["servers"] = count_servers(serve, Request(servers=1, **request))
    for name in ("gpus", "servers", "rails", "planes", "breakout", "grow_to"):
        if name in request:
            request[name] = read_whole(f"--{name.replace('_', '-')}", request[name])
    if "oversubscription" in request:
        request["oversubscription"] = read_number("--oversubscription", request["oversubscription"])
    if spec is None:
        return size(Request(**request))
    if request:
        flag = next(iter(request)).replace("_", "-")
        raise ConfigError(f"{getattr(spec, 'spec', spec)} is the fabric to plan: leave out --{flag}, or the spec")
    fabric = boxes_of(read_fabric(spec))
    return count(fabric.spec, fabric)


def bill(fabric: FabricLike, prices: PathLike | Prices | None = None) -> Bill:
    """Price a fabric in a room of usual measures: switches, adapters and cables; `weft plan` prints the total.

    Parameters
    ----------
    fabric
        A fabric, its spec, or the path of a file.
    prices
        A TOML file with your own prices, which replace weft's estimates.

    Returns
    -------
    Bill
        `items`, the `total` as a range, `per_gpu`, `missing` items without a price, `power_w`.

    Examples
    --------
    >>> bill = weft.bill("superpod:su=1")
    >>> bill.count("switch"), bill.complete
    (12, True)
    """
    from weft.plan.bill import bill_of
    from weft.plan.size import boxes_of

    return bill_of(boxes_of(read_fabric(fabric)), _read_prices(prices))


def _read_prices(prices: PathLike | Prices | None) -> Prices:
    return (
        prices if isinstance(prices, Prices) else read_prices(None if prices is None else read_path("--prices", prices))
    )


def _read_room(room: PathLike | Room | None) -> Room:
    from weft.plan.floor.room import Room, read_room

    return room if isinstance(room, Room) else Room() if room is None else read_room(read_path("--room", room))
