"""Predict times: of traffic, of a collective, of a training step, of a served model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.api.arguments import (
    FabricLike,
    read_fabric,
    read_fields,
    read_names,
    read_number,
    read_size_bytes,
    read_spec,
    read_text,
    read_whole,
)
from weft.api.routes import Dumps
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.routing.route import Routing
from weft.sim.engine import Memory, Network, Options

if TYPE_CHECKING:
    from weft.collectives.nccl.bench import Row
    from weft.collectives.ranks import Ranks
    from weft.inference.prediction import Inference
    from weft.sim.result import Result
    from weft.sim.traffic import Traffic
    from weft.training.job import Run

Progress = Callable[[int, int], None]  # messages or sizes done, and in all


def simulate(
    fabric: FabricLike,
    traffic: str | Traffic = "permutation",
    *,
    engine: str = "packet",
    size: int | str | None = None,
    load: float | None = None,
    duration_us: float | None = None,
    senders: int | None = None,
    receiver: str | None = None,
    distance: int | None = None,
    sl: int | None = None,
    operation: str | None = None,
    transport: str | None = None,
    tables: Dumps = None,
    routing_engine: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Result:
    """Run traffic over a fabric, as `weft sim` does.

    Parameters
    ----------
    fabric
        A routing, or a fabric, its spec or the path of a file; without tables it is routed first.
    traffic
        `permutation`, `incast`, `uniform`, `adversarial`, `tornado`, `shift`, `bisection`, `all-to-all`, `rails` or
        `multicast`; a collective by an algorithm, `all_reduce:ring`; the path of a traffic file, .csv, .json or .cm; or
        a Traffic.
    engine
        `packet` (every packet, credit and queue), `flow` (fair rates), `analytic` (closed forms), or `auto` (packet up
        to 20 million packet-hops and where flows lack something, else flow).
    size
        Of each message, in bytes or as `64K`, `1M`. By default 1M, for uniform traffic 4K.
    load, duration_us
        Uniform, adversarial and tornado traffic: the offered share of the line rate, and how long messages start.
    senders, receiver
        Incast: the number of senders and the receiving host. Multicast: the number of senders.
    distance
        The distance from sender to receiver: shift: in the list of hosts; adversarial: in groups.
    sl, operation, transport
        Service level; `write`, `send` or `read`; `rc`, `uc` or `ud`.
    tables
        Forwarding tables of OpenSM: a folder of its dumps, or one file of routes.
    routing_engine
        Route the fabric with this engine, whatever tables it has.
    progress
        Called with the number of delivered messages and of all messages.
    options
        Fields of `weft.sim.engine.Options`: `network="roce"`, `paths="ecmp"`, `memory="gpudirect"`, `seed=2`, ...

    Returns
    -------
    Result
        `finish_ps` of every message, the `use` of every port, and figures: `report()` has them all.

    Examples
    --------
    >>> result = weft.simulate("star:hosts=4", "incast", senders=3, size="1M")
    >>> result.report()["messages"], round(result.finish_ps.max() / 1e6)     # microseconds
    (3, 67)
    """
    from weft.api.traffic import check_traffic, make_traffic, read_parameters, route_traffic
    from weft.sim.engines import find_engine
    from weft.sim.traffic import Traffic

    chosen = find_engine(read_text("--engine", engine), auto=True)
    settings = Options(**read_fields("option of a simulation", options, Options))
    parameters = read_parameters(
        size=size,
        load=load,
        duration_us=duration_us,
        senders=senders,
        receiver=receiver,
        distance=distance,
        sl=sl,
        operation=operation,
        transport=transport,
    )
    if sl is not None and chosen.name in ("flow", "analytic"):
        raise ConfigError(f"--sl chooses a virtual lane, and the {chosen.name} engine has none: leave it out")
    if not isinstance(traffic, Traffic):
        check_traffic(read_text("--traffic", traffic), parameters)
    elif parameters:
        raise ConfigError(f"the traffic has all of its messages: leave out {', '.join(parameters)}")
    routed, _ = route_traffic(fabric, [settings], tables=tables, routing_engine=routing_engine, traffic=traffic)
    sent = traffic if isinstance(traffic, Traffic) else make_traffic(traffic, routed, parameters, settings.seed)
    return chosen.run(routed, sent, settings, progress=progress)


def time(
    fabric: FabricLike,
    collective: str,
    size: int | str,
    *,
    servers: str | int | Sequence[str] = "",
    algo: str = "",
    proto: str = "",
    nccl: str = "",
    network: str | None = None,
    paths: str | None = None,
    gpudirect: bool = True,
    seed: int = 1,
) -> Row:
    """Predict the time of a collective of NCCL, as nccl-tests would measure it; `weft nccl` prints a table of sizes.

    Parameters
    ----------
    fabric
        A routing, or a fabric, its spec or the path of a file; without tables it is routed first. Its servers must
        have GPUs: `server=dgx-h100`.
    collective
        `all_reduce`, `all_gather`, `reduce_scatter`, `broadcast`, `reduce`, `all_to_all`, ...; names of MPI, PyTorch
        and nccl-tests are accepted too.
    size
        The larger buffer of a rank, in bytes or as `1G`.
    servers
        The servers that take part: a number, names such as `dgx1,dgx3`, `dgx[1-4]` or `dgx1..4`, or a list. By default
        all.
    algo, proto
        Algorithms and protocols among which NCCL chooses: `Ring`, `Tree`, `NVLS`; `LL`, `LL128`, `Simple`.
    nccl
        The version of NCCL, 2.18 to 2.32.
    network, paths
        `infiniband`, `roce`, `tcp`, ...; `table`, `adaptive`, `ecmp` or `spray`. The default follows from the links.
    gpudirect
        Adapters access GPU memory directly; else data is copied through host memory.
    seed
        Random seed for ECMP hashing.

    Returns
    -------
    Row
        `time_us`, `bus_gbyte_s`, the `choice` of NCCL, the part that `bound` it, and `band_us`, the 90 % interval.

    Examples
    --------
    >>> row = weft.time("superpod:su=1,servers=4", "all_reduce", "1G")
    >>> round(row.time_us), round(row.bus_gbyte_s), row.choice
    (6589, 316, 'Ring/Simple/16')
    """
    from weft.collectives.kinds import Algorithm, Protocol
    from weft.collectives.kinds import collective as find_collective
    from weft.collectives.nccl.bench import Settings, Sizes, run
    from weft.collectives.nccl.environment import permitted

    kind, size_bytes = find_collective(str(collective)), read_size_bytes(size)
    settings = Settings(
        collective=kind,
        sizes=Sizes(min_bytes=size_bytes, max_bytes=size_bytes),
        algorithms=permitted("NCCL_ALGO", read_text("--algo", algo), kind, Algorithm),
        protocols=permitted("NCCL_PROTO", read_text("--proto", proto), kind, Protocol),
        nccl=read_text("--nccl", nccl),
        prove=False,
        options=nccl_options(network, paths, gpudirect=gpudirect, seed=read_whole("seed", seed)),
    )
    return run(place_ranks(read_fabric(fabric), read_names("servers", servers)), settings).rows[0]


def nccl_options(
    network: str | None,
    paths: str | None,
    *,
    gpudirect: bool,
    seed: int,
    plane_choice: str | None = None,
    in_order: bool = False,
) -> Options:
    """Return the options of a run of NCCL. Sockets read host memory, to which NCCL's kernels write."""
    direct = Memory.HOST if network == Network.TCP else Memory.GPUDIRECT
    names: dict[str, Any] = {
        "network": network,
        "paths": paths,
        "plane_choice": plane_choice,
    }  # text: Options finds the enum
    return Options(**names, in_order=in_order, memory=direct if gpudirect else Memory.STAGED, seed=seed)


def place_ranks(fabric: Fabric, servers: str) -> Ranks:
    """Return the ranks of a job on these servers, a number or names, with routes between them."""
    from weft.collectives.nccl.cluster import check_gpus
    from weft.collectives.ranks import pick_servers, place
    from weft.sim.perftest import prepare_job

    names = pick_servers(fabric, servers)
    check_gpus(fabric, names)
    return place(prepare_job(fabric), names)


def train(
    model: str,
    fabric: FabricLike | None = None,
    *,
    gpus: int | None = None,
    servers: str | int | Sequence[str] = "",
    server: str | None = None,
    network: str | None = None,
    paths: str | None = None,
    engine: str = "flow",
    slowest: float | None = None,
    seed: int = 1,
    **layout: Any,
) -> Run:
    """Predict a step of a training job, as `weft train` does.

    Parameters
    ----------
    model
        `llama3-8b`, `llama3-70b`, `gpt3-175b`, ..., or the path of a Hugging Face config.json.
    fabric
        A fabric of the catalog, `ndr` or `roce-400`; or a fabric, its spec or the path of a file. By default that of
        the server's adapters.
    gpus, servers
        The GPUs or the servers that take part; servers as in `weft.time`.
    server
        The server template, if the fabric is one of the catalog. By default dgx-h100.
    network, paths
        As in `weft.time`.
    engine
        `flow`, `analytic` or `packet`.
    slowest
        The factor by which the slowest GPU computes longer than the mean.
    seed
        Random seed for ECMP hashing.
    layout
        Fields of `weft.training.parallel.Layout`: `tp=4`, `pp=2`, `seq=4096`, `global_batch=512`, ... Without sizes
        the fastest layout is searched.

    Returns
    -------
    Run
        `step.step_s`, `step.mfu`, `step.parts`, the `band` around the time, `footprint` in memory, `days(tokens)`.

    Examples
    --------
    >>> run = weft.train("llama3-8b", "ndr", gpus=16, tp=4, seq=4096)
    >>> round(run.step.step_s, 2), round(run.step.mfu, 2)
    (0.85, 0.5)
    """
    from weft.sim.engines import find_engine
    from weft.training.parallel import Layout
    from weft.training.prediction import find_sites, predict
    from weft.training.transformer import find

    layout = read_fields("field of a layout", layout, Layout, "dp")
    cabled = fabric.fabric if isinstance(fabric, Routing) else fabric
    sites = find_sites(
        [cabled if cabled is None or isinstance(cabled, Fabric) else read_spec(cabled)],
        [None if gpus is None else read_whole("gpus", gpus)],
        layout=layout,
        servers=read_names("servers", servers),
        server=server,
        network=network,
        paths=paths,
        seed=read_whole("seed", seed),
    )
    slowest = None if slowest is None else read_number("--slowest", slowest)
    clock = find_engine(read_text("--engine", engine))
    return predict(find(str(model)), sites, layout, engine=clock, slowest=slowest).runs[0]


def infer(
    model: str,
    fabric: FabricLike | None = None,
    *,
    input_len: int = 1024,
    output_len: int | None = None,
    concurrency: int = 0,
    batch_size: int = 0,
    phase: str = "",
    gpus: int | None = None,
    servers: str | int | Sequence[str] = "",
    server: str | None = None,
    network: str | None = None,
    paths: str | None = None,
    framework: str = "vllm",
    engine: str = "flow",
    seed: int = 1,
    **deployment: Any,
) -> Inference:
    """Predict throughput and latency of a served model, as `weft infer` does.

    Parameters
    ----------
    model
        `llama3-70b`, `deepseek-v3`, ..., or the path of a Hugging Face config.json.
    fabric
        As in `weft.train`.
    input_len, output_len
        The tokens of a prompt and of an answer; 128 by default. In the phase `decode`, the first is the cached tokens.
    concurrency, batch_size
        The users of a closed loop; or the requests of a static batch. By default all requests wait, and steps are full.
    phase
        `prefill` or `decode`, if only one of them runs.
    gpus, servers, server
        As in `weft.train`; by default the GPUs of one replica.
    network, paths
        As in `weft.time`.
    framework
        `vllm`, `sglang`, `tensorrt-llm` or `tensorrt-llm-2023`.
    engine
        `flow`, `analytic` or `packet`, for the network between servers.
    seed
        Random seed for ECMP hashing.
    deployment
        Fields of `weft.inference.deployment.Deployment`: `tp=8`, `dp=32`, `ep=32`, `weights="fp8"`, `kv="fp8"`,
        `overlap=True`, `drafts=1`, ...

    Returns
    -------
    Inference
        `tokens_per_s`, `tokens_per_s_per_gpu`, `served.ttft_s`, `served.tpot_s`, `served.parts`, `bottleneck`,
        `band("tokens_per_s")` and `table`, step times by number of tokens.

    Examples
    --------
    >>> run = weft.infer("llama3-8b", server="dgx-h100", weights="fp8", concurrency=32)
    >>> run.bottleneck, run.served.ttft_s < 0.1
    ('products', True)
    """
    from weft.inference.deployment import Deployment, find_deployment
    from weft.inference.load import Load
    from weft.inference.load import default_output as choose_output
    from weft.inference.prediction import infer as predict
    from weft.sim.engines import find_engine

    fields = read_fields("field of a deployment", deployment, Deployment)
    cabled = fabric.fabric if isinstance(fabric, Routing) else fabric
    deployed = find_deployment(
        str(model),
        cabled if cabled is None or isinstance(cabled, Fabric) else read_spec(cabled),
        gpus=None if gpus is None else read_whole("gpus", gpus),
        servers=read_names("servers", servers),
        server=server,
        network=network,
        paths=paths,
        seed=read_whole("seed", seed),
        framework=read_text("--framework", framework),
        **fields,
    )
    load = Load(
        input=read_whole("input_len", input_len),
        output=choose_output(phase) if output_len is None else read_whole("output_len", output_len),
        concurrency=read_whole("concurrency", concurrency),
        batch=read_whole("batch_size", batch_size),
        phase=read_text("--phase", phase),
    )
    return predict(deployed, load, find_engine(read_text("--engine", engine)))
