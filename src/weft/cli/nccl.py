"""`weft nccl`: predict the output of nccl-tests (all_reduce_perf and others) on a cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, Faults, File, Form, Kinds, OnByDefault, Servers, Whole
from weft.cli.elsewhere import check_first_argument
from weft.cli.output import console, print_data, progress_bar, report_written, table
from weft.errors import ConfigError
from weft.units import parse_size_bytes

if TYPE_CHECKING:
    from weft.calibration.cross_validation import Prediction
    from weft.collectives.nccl.bench import Sizes
    from weft.collectives.nccl.calibration import Figure, Run
    from weft.collectives.ranks import Ranks

_WINDOWS = 2
_TITLE = "Published runs of nccl-tests, and how far weft is off"
Switched = Literal[0, 1, 2]  # as in NCCL's environment: off, on, on if supported
Registered = Literal[0, 1, 2]  # as in nccl-tests: no, local registration, symmetric windows


def _variable(name: str, *other_names: str) -> Parameter:
    """Return the parameter for an option that NCCL reads from its environment; the command line takes precedence."""
    return Parameter(name=[*other_names, f"--{name}"], env_var=name, show_env_var=False)


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
    fault: Faults = (),
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
    ofi_tuner: Annotated[Literal["Internal", "Region"] | None, _variable("OFI_NCCL_TUNER_TYPE")] = None,
    network: str | None = None,
    paths: str | None = None,
    plane_choice: str | None = None,
    in_order: Annotated[bool, Parameter(negative=())] = False,
    gpudirect: OnByDefault = True,
    tuner: File = None,
    picture: File = None,
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
        all_reduce, or its name in PyTorch, MPI, NCCL or nccl-tests: AllReduce, MPI_Allreduce, all_reduce_perf; or
        `calibration`, alone, with the name of a published run, or with `rccl` for AMD's GPUs.
    spec
        A topology, `superpod:su=1`, or the path of a file. Its servers must have GPUs.
    min_bytes
        Smallest message size.
    max_bytes
        Largest message size.
    factor
        Factor from one size to the next. [2, unless --stepbytes is given]
    step
        Bytes from one size to the next, instead of --stepfactor.
    algo
        Algorithms that NCCL may use: Ring, Tree, NVLS, NVLSTree, CollNetDirect, CollNetChain, PAT. Write Ring,Tree for
        two, ^NVLS for all others, ^NVLS;allreduce:Ring to add a list for one collective. [all]
    proto
        Protocols that NCCL may use: LL, LL128 or Simple, in the same form. [all]
    channels
        Number of channels; for point-to-point sends, NCCL_MIN_P2P_NCHANNELS and NCCL_MAX_P2P_NCHANNELS. [as NCCL
        chooses]
    nccl
        NCCL version to model: 2.18 to 2.32. [2.30]
    min_ctas
        Minimum number of channels.
    max_ctas
        Maximum number of channels.
    nvls
        0: without NVLink multicast. [as NCCL chooses]
    collnet
        1: use SHARP if the switches support it. [0]
    pat
        0: without PAT. [as NCCL chooses]
    min_channels
        Minimum number of channels of rings and trees.
    max_channels
        Maximum number of channels of rings and trees.
    p2p_chunk
        Chunk size of point-to-point sends over the network. [128K; 256K on Grace Blackwell]
    buffer
        Buffer size of a channel, which holds eight chunks. [4M]
    nvls_chunk
        Chunk size of NVLS. [128K]
    qps
        Queue pairs per channel between two adapters; with ECMP, more of them spread the load.
    datatype
        Element type: float, half, bfloat16, double, int32, uint32, int64 or uint64. Times depend on bytes only.
    op
        sum, the only operation that is modelled. No effect; accepted for compatibility.
    register
        2: register buffers as windows, for NCCL's symmetric kernels. [0]
    win
        0: without windows. [1]
    sym_kernel
        Use only this symmetric kernel: AllReduce_RSxLDMC_AGxSTMC.
    sym_ctas
        Thread blocks of a symmetric kernel. [as NCCL chooses]
    sym_tma
        1: symmetric kernels with the tensor memory accelerator, on Blackwell. [1 since NCCL 2.31]
    sym_gin
        0: without symmetric kernels between servers. [1]
    ofi_tuner
        Internal: without the tuner of AWS's plugin, which chooses over EFA on three and more servers. [Region]
    network
        Protocol: infiniband, omni-path, roce, roce-v1 or tcp. [that of the links; roce on Ethernet]
    paths
        Choice of paths: table, adaptive, ecmp or spray. [table; ecmp on Ethernet]
    plane_choice
        Adapters with several planes: the unit that takes one of them: packet, message or queue-pair. [packet]
    in_order
        Adapters without out-of-order placement: on planes, each queue pair takes one.
    gpudirect
        Let adapters read and write GPU memory; otherwise data is copied through host memory.
    tuner
        Write the fastest choice at each size for NCCL's example tuner plugin, .csv.
    picture
        The picture to write: bus bandwidth over size, .png, .svg or .pdf.
    explain
        Print more: three columns with algorithm, protocol and channels; the bottleneck; and the 90 % band.
    seed
        Random seed, for ECMP hashing.
    gpus
        GPUs per thread: times --nthreads, 1 or all GPUs of a server. No effect; accepted for compatibility.
    threads
        Threads per process. No effect; accepted for compatibility.
    iterations
        Iterations, which are all the same in a simulation. No effect; accepted for compatibility.
    warmup
        Warm-up iterations. No effect; accepted for compatibility.
    check
        0: do not verify the result, #wrong is N/A; 1: verify it if the collective is small enough.
    """
    from weft.api.predictions import nccl_options
    from weft.collectives.kinds import Algorithm, Protocol
    from weft.collectives.kinds import collective as find_collective
    from weft.collectives.nccl import nccl_tests
    from weft.collectives.nccl.bench import Settings, run, without_effect
    from weft.collectives.nccl.environment import permitted
    from weft.draw.chart import check_suffix
    from weft.fabric.spec import as_kinds

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
        ofi_tuner=ofi_tuner != "Internal",
        prove=check != 0,
        options=nccl_options(
            network, paths, gpudirect=gpudirect, seed=seed, plane_choice=plane_choice, in_order=in_order
        ),
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
        results = run(ranks, settings, lambda done, of: change(completed=done, total=of))
    if tuner is not None:
        from weft.collectives.nccl.tuner import to_text
        from weft.fabric.files.atomic import write_atomically

        write_atomically(tuner, to_text(results))
    if picture is not None:
        from weft.collectives.nccl.curve import draw_curve

        draw_curve(picture, results)
    if form.is_data:
        print_data(form, nccl_tests.report(results), "results")
        return
    for line in nccl_tests.text(results, explain=explain):
        print(line)
    unused = [*_unknown_variables(), *without_effect(results)]
    if unused:
        print(f"# Of NCCL's environment, without effect here: {', '.join(unused)}")
    report_written(tuner, picture, prefix="# ")


def _unknown_variables() -> list[str]:
    """Return the NCCL variables of the environment that are not options of this command."""
    from weft.cli import app

    options = {name for argument in app["nccl"].assemble_argument_collection() for name in argument.names}
    return sorted(name for name in os.environ if name.startswith("NCCL_") and f"--{name}" not in options)


def _sizes(min_bytes: str, max_bytes: str, factor: int | None, step: str) -> Sizes:
    from weft.collectives.nccl.bench import Sizes

    if step and factor is not None:
        raise ConfigError(f"-f {factor} -i {step}: sizes grow by one of them; nccl-tests would not look at -i")
    return Sizes(
        min_bytes=parse_size_bytes(min_bytes),
        max_bytes=parse_size_bytes(max_bytes),
        factor=factor if factor is not None else 1 if step else 2,
        step_bytes=parse_size_bytes(step) if step else 1 << 20,
    )


def _place(spec: str, servers: str, faults: Sequence[str]) -> Ranks:
    from weft.api.predictions import place_ranks
    from weft.fabric.spec import load
    from weft.training.failures import break_permanently

    return place_ranks(break_permanently(load(spec), faults), servers)


# -- published runs ---------------------------------------------------------------------------------------------------


def _calibrate(name: str, form: Form) -> None:
    from weft.collectives.nccl import calibration, cross_validation

    if name == "rccl":
        _calibrate_rccl(form)
        return
    chosen = (calibration.find(name),) if name else calibration.runs()
    if form.is_data:
        print_data(form, [_run_facts(run) for run in chosen], "figures")
        return
    with progress_bar(f"running {name or 'all'} again"):
        columns, rows, note = calibration.figure_table(chosen[0]) if name else calibration.calibration_table()
    out = console()
    out.print(table(f"{name}, measured and simulated" if name else _TITLE, columns, rows))
    out.print(note, markup=False)
    if not name:
        with progress_bar("leaving out each cluster"):
            columns, rows, note = cross_validation.cross_validation_table()
        out.print(table("Each cluster left out: constants fitted without it, bands by the others", columns, rows))
        out.print(table("The same by class, the largest error first", *cross_validation.class_table()))
        out.print(note, markup=False)


def _calibrate_rccl(form: Form) -> None:
    from weft.collectives.nccl.rccl import calibration

    if form.is_data:
        facts = [
            {
                "run": figure.run,
                "cluster": figure.cluster,
                "size_bytes": figure.size_bytes,
                "measured_us": figure.measured,
                "simulated_us": figure.predicted,
                "error": figure.error,
                "algorithm": figure.timing.name,
            }
            for run in calibration.runs()
            for figure in calibration.compare(run)
        ]
        print_data(form, facts, "figures")
        return
    out = console()
    out.print(table("Published runs of rccl-tests, and how far weft is off", *calibration.calibration_table()))
    with progress_bar("leaving out each machine"):
        columns, rows, note = calibration.cross_validation_table()
    out.print(table("Each machine left out: constants fitted without it, bands by the others", columns, rows))
    out.print(table("The same by class, the largest error first", *calibration.class_table()))
    out.print(note, markup=False)


def _run_facts(run: Run) -> dict[str, Any]:
    from weft.collectives.nccl.calibration import compare
    from weft.collectives.nccl.cross_validation import cross_validate

    predicted = cross_validate()[run.where]
    without = {(prediction.figure.run, prediction.figure.size_bytes): prediction for prediction in predicted}
    about = {
        key: getattr(run, key)
        for key in ("name", "where", "collective", "network", "promised", "source", "date", "note")
    }
    return about | {
        "cluster": asdict(run.cluster),
        "figures": [
            {
                "size_bytes": figure.size_bytes,
                "measured_us": figure.measured,
                "simulated_us": figure.predicted,
                "error": figure.error,
                "kept": figure.is_within_limit,
                "cross_validation": _prediction_facts(without[figure.run, figure.size_bytes]),
                "algorithm": figure.estimate.name,
                "channels": figure.estimate.channels,
                "bound": figure.estimate.bound,
                "parts_us": figure.estimate.parts,
            }
            for figure in compare(run)
        ],
    }


def _prediction_facts(prediction: Prediction[Figure]) -> dict[str, Any]:
    return {
        "simulated_us": prediction.figure.predicted,
        "band_us": prediction.band.around(prediction.figure.estimate.time_us),
        "in_band": prediction.is_in_band,
    }
