"""`weft nccl`: what all_reduce_perf and its like would print on a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form, Kinds, OnByDefault, Picture, Servers, Whole
from weft.cli.elsewhere import check_first_argument
from weft.cli.output import console, print_data, progress_bar, report_written, table

if TYPE_CHECKING:
    from weft.collectives.nccl.bench import Sizes
    from weft.collectives.nccl.calibration import Run
    from weft.collectives.ranks import Ranks

_WINDOWS = 2
_TITLE = "Published runs of nccl-tests, and how far weft is off"
Switched = Literal[0, 1, 2]  # of NCCL's environment: no, yes, where it can
Registered = Literal[0, 1, 2]  # of nccl-tests: not, by NCCL's local registration, as windows


def _variable(name: str, *others: str) -> Parameter:
    """An option that NCCL takes from its environment, and so does `weft nccl`; the command line goes before."""
    return Parameter(name=[*others, f"--{name}"], env_var=name, show_env_var=False)


def nccl(
    collective: str,
    spec: Annotated[str, NAMES_FILE] = "",
    /,
    *,
    min_bytes: Annotated[str, Parameter(name=["--minbytes", "-b"])] = "8",
    max_bytes: Annotated[str, Parameter(name=["--maxbytes", "-e"])] = "8G",
    factor: Annotated[Whole | None, Parameter(name=["--stepfactor", "-f"])] = None,
    step: Annotated[str, Parameter(name=["--stepbytes", "-i"])] = "",
    kinds: Kinds = "",
    servers: Servers = "",
    fault: tuple[str, ...] = (),
    algo: Annotated[str, _variable("NCCL_ALGO", "--algo")] = "",
    proto: Annotated[str, _variable("NCCL_PROTO", "--proto")] = "",
    channels: Whole | None = None,
    nccl: str = "",
    min_ctas: Annotated[Whole | None, _variable("NCCL_MIN_CTAS")] = None,
    max_ctas: Annotated[Whole | None, _variable("NCCL_MAX_CTAS")] = None,
    nvls: Annotated[Switched | None, _variable("NCCL_NVLS_ENABLE")] = None,
    collnet: Annotated[Switched | None, _variable("NCCL_COLLNET_ENABLE")] = None,
    pat: Annotated[Switched | None, _variable("NCCL_PAT_ENABLE")] = None,
    min_channels: Annotated[Whole | None, _variable("NCCL_MIN_NCHANNELS")] = None,
    max_channels: Annotated[Whole | None, _variable("NCCL_MAX_NCHANNELS")] = None,
    p2p_chunk: Annotated[str, _variable("NCCL_P2P_NET_CHUNKSIZE")] = "",
    buffer: Annotated[str, _variable("NCCL_BUFFSIZE")] = "",
    nvls_chunk: Annotated[str, _variable("NCCL_NVLS_CHUNKSIZE")] = "",
    qps: Annotated[Whole, _variable("NCCL_IB_QPS_PER_CONNECTION")] = 1,
    datatype: Annotated[str, Parameter(name=["--datatype", "-d"])] = "float",
    op: Annotated[str, Parameter(name=["--op", "-o"])] = "sum",
    register: Annotated[Registered, Parameter(name=["--local_register", "-R"])] = 0,
    win: Annotated[Literal[0, 1] | None, _variable("NCCL_WIN_ENABLE")] = None,
    sym_kernel: Annotated[str, _variable("NCCL_SYM_KERNEL")] = "",
    sym_ctas: Annotated[Whole, _variable("NCCL_SYM_CTAS")] = 0,
    sym_tma: Annotated[Literal[0, 1] | None, _variable("NCCL_SYM_TMA_ENABLE")] = None,
    sym_gin: Annotated[Literal[0, 1] | None, _variable("NCCL_SYM_GIN_KERNELS_ENABLE")] = None,
    network: str | None = None,
    paths: str | None = None,
    gpudirect: OnByDefault = True,
    tuner: File = None,
    picture: Picture = None,
    explain: bool = False,
    seed: Whole = 1,
    gpus: Annotated[Whole | None, Parameter(name=["--ngpus", "-g"])] = None,
    threads: Annotated[Whole, Parameter(name=["--nthreads", "-t"])] = 1,
    iterations: Annotated[Whole, Parameter(name=["--iters", "-n"])] = 20,
    warmup: Annotated[Whole, Parameter(name=["--warmup_iters", "-w"])] = 1,
    check: Annotated[Whole, Parameter(name=["--check", "-c"])] = 1,
    form: Form = TABLES,
) -> None:
    """Predict nccl-tests: a collective at every size.

    The output has the form of nccl-tests. `weft nccl calibration` compares weft with published runs.

    Parameters
    ----------
    collective
        all_reduce, or as PyTorch, MPI, NCCL and nccl-tests call it: AllReduce, MPI_Allreduce, all_reduce_perf; or
        `calibration`, alone or with the name of a published run.
    spec
        A topology, `superpod:su=1`, or the path of a file. Its servers must have GPUs.
    min_bytes
        The smallest size.
    max_bytes
        The largest.
    factor
        From one size to the next. Else 2, unless --stepbytes is given.
    step
        Bytes from one size to the next; not with a factor.
    fault
        Break this before the run, and route around it: cut:dgx1/mlx5_0/1, slow:leaf1/3=4xHDR or dead:spine1. May be
        given several times.
    algo
        Among which NCCL chooses: Ring, Tree, NVLS, NVLSTree, CollNetDirect, CollNetChain, PAT. Ring,Tree are two, ^NVLS
        all others, ^NVLS;allreduce:Ring with a list for one collective. Else all.
    proto
        LL, LL128 or Simple, in the same way. Else all.
    channels
        So many; for sends between pairs, of all of them together: NCCL_MIN_P2P_NCHANNELS and NCCL_MAX_P2P_NCHANNELS.
        Else what NCCL would choose.
    nccl
        Whose choices: 2.18 to 2.32. Else 2.30, the newest whose source is public.
    min_ctas
        Channels at least, as NCCL takes it from its environment.
    max_ctas
        Channels at most.
    nvls
        0: no NVLink multicast. Else 1 or 2, as NCCL has it by itself.
    collnet
        1: SHARP, where the switches have it. Else 0.
    pat
        0: no PAT. Else 1 or 2.
    min_channels
        Channels of rings and trees at least.
    max_channels
        Channels of rings and trees at most.
    p2p_chunk
        Bytes of a chunk of sends between pairs over the network. Else 128K, or 256K on Grace Blackwell.
    buffer
        Bytes of a channel's buffer, which has eight chunks. Else 4M.
    nvls_chunk
        Bytes of a chunk of NVLS. Else 128K.
    qps
        Queue pairs of a channel between two adapters: where hashes choose links, more of them spread the load.
    datatype
        Of an element: float, half, bfloat16, double, int32, uint32, int64 or uint64. Times are of bytes.
    op
        Accepted and ignored where it is sum: others are not modelled.
    register
        2: buffers are registered as windows, for NCCL's symmetric kernels. Else 0.
    win
        0: no windows. Else 1.
    sym_kernel
        Only this symmetric kernel: AllReduce_RSxLDMC_AGxSTMC.
    sym_ctas
        So many blocks of a symmetric kernel. Else what NCCL would choose.
    sym_tma
        1: symmetric kernels with the tensor memory accelerator, on Blackwell; since 2.31 unless 0.
    sym_gin
        0: no symmetric kernels between servers. Else 1.
    network
        infiniband, omni-path, roce, roce-v1 or tcp. Else as the links speak; Ethernet is roce.
    paths
        table, adaptive, ecmp or spray. Else table, on Ethernet ecmp.
    gpudirect
        Adapters read and write GPU memory; else data is copied through host memory.
    tuner
        Write what weft finds fastest at each size for NCCL's example tuner plugin, .csv.
    picture
        Bus bandwidth over size, .png, .svg or .pdf.
    explain
        Three more columns: algorithm, protocol and channels, what bounds them, and how far off they may be.
    seed
        Of hashes.
    gpus
        Accepted and ignored, from command lines of nccl-tests: GPUs of a thread; with --nthreads, 1 or all of a server.
    threads
        Accepted and ignored: threads of a process, likewise.
    iterations
        Accepted and ignored: every iteration of a simulated run is the same.
    warmup
        Accepted and ignored.
    check
        0: prove nothing, #wrong is N/A. Else programs are proved, where they are small enough.
    """
    from weft.collectives.kinds import Algorithm, Protocol
    from weft.collectives.kinds import collective as find_collective
    from weft.collectives.nccl import nccl_tests
    from weft.collectives.nccl.bench import Settings, run, without_effect
    from weft.collectives.nccl.environment import permitted
    from weft.draw.chart import check_suffix
    from weft.errors import ConfigError
    from weft.fabric.spec import as_kinds
    from weft.sim.engine import Memory, Network, Options
    from weft.units import parse_size_bytes

    check_first_argument("nccl", collective, spec)
    if collective == "calibration":
        _calibrate(spec, form)
        return
    if register == 1:
        raise ConfigError("-R 1: NCCL's local registration is not modelled. -R 2 has buffers in windows, -R 0 in none")
    if op != "sum":
        raise ConfigError(
            f"-o {op}: reductions are sums here. NCCL has no NVLS for most others of floats, whose times "
            f"--NCCL_NVLS_ENABLE 0 has. A table goes into a file by > FILE"
        )
    if picture is not None:
        check_suffix(picture)  # before a long run
    # Sockets read host memory, to which NCCL's kernels write.
    direct = Memory.HOST if network == Network.TCP else Memory.GPUDIRECT
    chosen: dict[str, Any] = {"network": network, "paths": paths}  # by name: Options knows which there are
    chosen["memory"] = direct if gpudirect else Memory.STAGED
    kind = find_collective(collective)
    settings = Settings(
        collective=kind,
        sizes=_sizes(min_bytes, max_bytes, factor, step),
        algorithms=permitted("NCCL_ALGO", algo, kind, Algorithm),
        protocols=permitted("NCCL_PROTO", proto, kind, Protocol),
        channels=channels,
        datatype=datatype,
        nccl=nccl,
        nvls=nvls != 0,
        sharp=collnet == 1,
        pat=pat != 0,
        min_ctas=min_ctas,
        max_ctas=max_ctas,
        min_channels=min_channels,
        max_channels=max_channels,
        chunk_bytes=parse_size_bytes(p2p_chunk) if p2p_chunk else None,
        buffer_bytes=parse_size_bytes(buffer) if buffer else None,
        nvls_chunk_bytes=parse_size_bytes(nvls_chunk) if nvls_chunk else None,
        qps=qps,
        windows=register == _WINDOWS,
        win_enable=win != 0,
        sym_kernel=sym_kernel,
        sym_ctas=sym_ctas,
        sym_tma=None if sym_tma is None else sym_tma == 1,
        sym_gin=sym_gin != 0,
        prove=check != 0,
        options=Options(**chosen, seed=seed),
    )
    if not spec:
        raise ConfigError(f"{collective} needs a cluster: weft nccl {collective} superpod:su=1 --servers 2")
    with progress_bar(f"reading {spec}"):
        ranks = _place(as_kinds(spec, kinds), servers, fault)
    if gpus is not None and gpus * threads not in (1, ranks.per_server):
        raise ConfigError(
            f"-g {gpus} -t {threads}: all {ranks.per_server} GPUs of a server of {spec} take part: give "
            f"-g {ranks.per_server} or -g 1, or a server that has fewer, server=hgx-h100-4"
        )
    alone = len(ranks.servers) == 1
    for flag, idle, why in (
        ("--network", alone and network is not None, "one server sends nothing over a network"),
        ("--paths", alone and paths is not None, "one server sends nothing over a network"),
        ("--no-gpudirect", alone and not gpudirect, "one server sends nothing over a network"),
        ("--explain", explain and form.is_data, "it adds columns to the table, which data has anyway"),
    ):
        if idle:
            raise ConfigError(f"{flag} changes nothing here: {why}. Leave it out")
    with progress_bar("sizes") as change:
        found = run(ranks, settings, lambda done, of: change(completed=done, total=of))
    if tuner is not None:
        from weft.collectives.nccl.tuner import to_text
        from weft.fabric.files.atomic import write_atomically

        write_atomically(tuner, to_text(found))
    if picture is not None:
        from weft.collectives.nccl.curve import draw_curve

        draw_curve(picture, found)
    if form.is_data:
        print_data(form, nccl_tests.report(found), "results")
        return
    for line in nccl_tests.text(found, explain=explain):
        print(line)
    unused = [*_unknown_variables(), *without_effect(found)]
    if unused:
        print(f"# Of NCCL's environment, without effect here: {', '.join(unused)}")
    report_written(tuner, picture, prefix="# ")


def _unknown_variables() -> list[str]:
    """Variables of NCCL's that are set and are no option."""
    from weft.cli import app

    taken = {name for one in app["nccl"].assemble_argument_collection() for name in one.names}
    return sorted(name for name in os.environ if name.startswith("NCCL_") and f"--{name}" not in taken)


def _sizes(min_bytes: str, max_bytes: str, factor: int | None, step: str) -> Sizes:
    from weft.collectives.nccl.bench import Sizes
    from weft.errors import ConfigError
    from weft.units import parse_size_bytes

    if step and factor is not None:
        raise ConfigError(f"-f {factor} -i {step}: sizes grow by one of them; nccl-tests would not look at -i")
    return Sizes(
        min_bytes=parse_size_bytes(min_bytes),
        max_bytes=parse_size_bytes(max_bytes),
        factor=factor if factor is not None else 1 if step else 2,
        step_bytes=parse_size_bytes(step) if step else 1 << 20,
    )


def _place(spec: str, servers: str, faults: Sequence[str]) -> Ranks:
    from weft.collectives.nccl.cluster import check_gpus
    from weft.collectives.ranks import pick_servers, place
    from weft.errors import ConfigError
    from weft.fabric.spec import load
    from weft.sim.perftest import prepare
    from weft.training.failures import parse_fault

    fabric = load(spec)
    for one in map(parse_fault, faults):
        if one.kind == "flap":
            raise ConfigError(f"--fault {one} is over some time: `weft train` has it; cut: or slow: are for good")
        fabric = one.break_(fabric)
    chosen = pick_servers(fabric, servers)
    check_gpus(fabric, chosen)
    return place(prepare(fabric), chosen)


# -- published runs ---------------------------------------------------------------------------------------------------


def _calibrate(name: str, form: Form) -> None:
    from weft.collectives.nccl import calibration, cross_validation

    chosen = (calibration.find(name),) if name else calibration.runs()
    if form.is_data:
        print_data(form, [_run_facts(one) for one in chosen], "figures")
        return
    with progress_bar(f"running {name or 'all'} again"):
        columns, rows, note = calibration.figure_table(chosen[0]) if name else calibration.calibration_table()
    out = console()
    out.print(table(f"{name}, measured and simulated" if name else _TITLE, columns, rows))
    out.print(note, markup=False)
    if not name:
        with progress_bar("leaving out each cluster"):
            columns, rows, note = cross_validation.left_out_table()
        out.print(table("Each cluster left out: constants fitted without it, bands by the others", columns, rows))
        out.print(note, markup=False)


def _run_facts(one: Run) -> dict[str, Any]:
    from dataclasses import asdict

    from weft.collectives.nccl.calibration import compare
    from weft.collectives.nccl.cross_validation import left_out

    without = {(other.figure.run, other.figure.size_bytes): other for other in left_out()[one.where]}
    about = {
        key: getattr(one, key)
        for key in ("name", "where", "collective", "network", "promised", "source", "date", "note")
    }
    return about | {
        "cluster": asdict(one.cluster),
        "figures": [
            {
                "size_bytes": figure.size_bytes,
                "measured_us": figure.measured_us,
                "simulated_us": figure.simulated_us,
                "error": figure.error,
                "kept": figure.kept,
                "left_out_us": without[figure.run, figure.size_bytes].figure.simulated_us,
                "left_out_band_us": [
                    without[figure.run, figure.size_bytes].band.low_us,
                    without[figure.run, figure.size_bytes].band.high_us,
                ],
                "left_out_held": without[figure.run, figure.size_bytes].held,
                "algorithm": figure.estimate.name,
                "channels": figure.estimate.channels,
                "bound": figure.estimate.bound,
                "parts_us": figure.estimate.parts,
            }
            for figure in compare(one)
        ],
    }
