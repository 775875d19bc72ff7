"""Every option of a command changes its result somewhere, and is refused where it could not.

The options are those of the commands' own signatures: a new one without a case here is red.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from weft.cli import app
from weft.errors import ConfigError
from weft.fabric import files
from weft.fabric.spec import load

TRAIN = "llama3-8b --gpus 16 --engine analytic"
CUT = f"{TRAIN} --tp 2"
MOE = "mixtral-8x7b --gpus 16 --engine analytic --tp 1 --ep 8 --seq 2048 --layers 8"
HASHED = "fat-tree:hosts=8,radix=8,server=hgx-h100-4,speed=400GbE"
TRAIN_HASHED = f"llama3-8b --tp 1 --zero 3 --engine analytic --fabric {HASHED}"
NCCL_HASHED = f"all_reduce {HASHED} -b 1G -e 1G"
TRAIN_CASES = {
    "--gpus": (CUT, "--gpus 24"),
    "--fabric": (CUT, "--fabric eth-100-tcp"),
    "--as": ("gpt-5b --tp 8 --engine analytic --fabric DUMP", "--as 'dgx*=dgx-a100'"),
    "--servers": ("llama3-8b --tp 2 --fabric star:hosts=3,server=dgx-h100 --engine analytic", "--servers 2"),
    "--server": (CUT, "--server dgx-a100"),
    "--network": (f"{CUT} --fabric roce-400", "--network tcp"),
    "--paths": (TRAIN_HASHED, "--paths spray"),
    "--slowest": (CUT, "--slowest 1.5"),
    "--engine": ("llama3-8b --tp 1 --zero 3 --fabric star:hosts=2,server=hgx-h100-4", "--engine packet"),
    "--seed": (TRAIN_HASHED, "--seed 2"),
    "--tp": (CUT, "--tp 4"),
    "--pp": (CUT, "--pp 2"),
    "--vp": (f"{CUT} --pp 2", "--vp 2"),
    "--pipeline-layout": (f"{CUT} --pp 2 --layers 8", "--pipeline-layout Et*3|t*5L"),
    "--cp": (CUT, "--cp 2"),
    "--ep": (MOE, "--ep 4"),
    "--etp": (MOE.replace("--tp 1", "--tp 2"), "--etp 1"),
    "--dp": ("llama3-8b --engine analytic --tp 2 --dp 8", "--dp 16"),
    "--micro-batch": (CUT, "--micro-batch 2"),
    "--zero": (CUT, "--zero 3"),
    "--recompute": (CUT, "--recompute full"),
    "--global-batch": (CUT, "--global-batch 64"),
    "--seq": (CUT, "--seq 4096"),
    "--precision": (CUT, "--precision fp8"),
    "--sequence-parallel": (CUT, "--no-sequence-parallel"),
    "--overlap-grad-reduce": (f"{CUT} --zero 3", "--no-overlap-grad-reduce"),
    "--overlap-param-gather": (f"{CUT} --zero 3", "--no-overlap-param-gather"),
    "--tp-comm-overlap": (CUT, "--no-tp-comm-overlap"),
    "--overlap-p2p": (f"{CUT} --pp 2 --vp 2", "--no-overlap-p2p"),
    "--overlap-moe": (MOE, "--overlap-moe"),
    "--sample-bytes": (f"{CUT} --storage-gbyte-s 1", "--sample-bytes 1e9"),
    "--sample-ms": (CUT, "--sample-ms 6000"),
    "--loader-workers": (f"{CUT} --sample-ms 6000", "--loader-workers 3"),
    "--storage-gbyte-s": (f"{CUT} --sample-bytes 1e9", "--storage-gbyte-s 1"),
    "--grad-reduce-in-fp32": (CUT, "--no-grad-reduce-in-fp32"),
    "--framework": (CUT, "--framework fsdp-eager"),
    "--optimizer-precision": (CUT, "--optimizer-precision bf16"),
    "--fused-attention": (f"{CUT} --seq 2048", "--no-fused-attention"),
    "--attention": (CUT, "--attention fa2"),
    "--recompute-layers": (f"{CUT} --recompute full", "--recompute-layers 1"),
    "--offload-layers": (CUT, "--offload-layers 8"),
    "--offload-optimizer": (CUT, "--offload-optimizer"),
    "--dispatcher": (MOE, "--dispatcher allgather"),
    "--fp8-dispatch": (MOE, "--fp8-dispatch"),
    "--imbalance": (MOE, "--imbalance 1.5"),
    "--cuda-graphs": (MOE.replace("--seq 2048", "--seq 512"), "--cuda-graphs full_iteration"),
    "--lora": (CUT, "--lora 16"),
    "--lora-modules": (f"{CUT} --lora 16", "--lora-modules linear_qkv"),
    "--layers": (CUT, "--layers 16"),
    "--hidden": (CUT, "--hidden 2048"),
    "--ffn": (CUT, "--ffn 8192"),
    "--heads": (CUT, "--heads 16"),
    "--kv-heads": (CUT, "--kv-heads 16"),
    "--head-dim": (CUT, "--head-dim 64"),
    "--vocab": (CUT, "--vocab 32000"),
    "--experts": (MOE, "--experts 16"),
    "--topk": (MOE, "--topk 1"),
    "--expert-ffn": (MOE, "--expert-ffn 8192"),
    "--mtp": (MOE, "--mtp 1"),
    "--fault": (CUT, "--fault slow:leaf1/1=4xHDR"),
    "--goodput": (CUT, "--goodput llama3"),
    "--checkpoint-minutes": (f"{CUT} --goodput llama3", "--checkpoint-minutes 7"),
    "--checkpoint-waits": (f"{CUT} --goodput llama3", "--checkpoint-waits"),
    "--storage": (
        "llama3-8b --tp 2 --engine analytic --fabric star:hosts=3,server=dgx-h100 --servers 2",
        "--storage dgx3",
    ),
    "--tokens": (CUT, "--tokens 15T"),
    "--search": ("llama3-8b --gpus 16 --tp 2 --pp 1 --micro-batch 1", "--search"),
    "--fabrics": (CUT, "--fabrics ndr,roce-400"),
    "--scale": ("llama3-8b --tp 2 --engine analytic --gpus 8", "- llama3-8b --tp 2 --engine analytic --scale 8,16"),
    "--strong": ("llama3-8b --tp 2 --engine analytic --scale 8,16", "--strong"),
    "--picture": (f"{CUT} --fabrics ndr,roce-400", "--picture OUT.svg"),
    "--timeline": (CUT, "--timeline OUT.svg"),
    "--trace": (CUT, "--trace OUT.json"),
    "--validate": (CUT, "- --validate"),
}

TWO = "all_reduce star:hosts=2,server=dgx-h100 -b 1M -e 1G -f 32"
PAIRED = "alltoall star:hosts=2,server=dgx-h100 -b 1M -e 1G -f 32"
ONE = "all_reduce star:hosts=1,server=dgx-h100 -b 1M -e 1G -f 32"
SINGLE = "all_gather star:hosts=8,server=SINGLE -b 1K -e 1M -f 32"
WINDOWS = f"{ONE} -R 2 --nccl 2.28"
NCCL_CASES = {
    "--minbytes": (TWO, "-b 2M"),
    "--maxbytes": (TWO, "-e 64M"),
    "--stepfactor": (TWO, "-f 4"),
    "--stepbytes": ("all_reduce star:hosts=2,server=dgx-h100 -b 1M -e 4M", "-i 1M"),
    "--as": ("all_reduce DUMP -b 1M -e 1M", "--as 'dgx*=dgx-a100'"),
    "--servers": ("all_reduce star:hosts=3,server=dgx-h100 -b 1M -e 1M", "--servers 2"),
    "--fault": (TWO, "--fault cut:dgx2/mlx5_3/1"),
    "--plane-choice": (
        "all_reduce superpod:su=1,servers=2,server=dgx-b300,planes=4 -b 1G -e 1G",
        "--plane-choice queue-pair",
    ),
    "--in-order": ("all_reduce superpod:su=1,servers=2,server=dgx-b300,planes=4 -b 1G -e 1G", "--in-order"),
    "--algo": (TWO, "--algo Ring"),
    "--proto": (TWO, "--proto LL"),
    "--channels": (f"{TWO} --algo Ring", "--channels 4"),
    "--nccl": (TWO, "--nccl 2.18"),
    "--NCCL_MIN_CTAS": (f"{TWO} --algo Ring", "--NCCL_MIN_CTAS 32"),
    "--NCCL_MAX_CTAS": (f"{TWO} --algo Ring", "--NCCL_MAX_CTAS 2"),
    "--NCCL_NVLS_ENABLE": (ONE, "--NCCL_NVLS_ENABLE 0"),
    "--NCCL_COLLNET_ENABLE": (
        "all_reduce star:hosts=4,server=dgx-h100,switch=QM9700 -b 1M -e 1G -f 32",
        "--NCCL_COLLNET_ENABLE 1",
    ),
    "--NCCL_PAT_ENABLE": (SINGLE, "--NCCL_PAT_ENABLE 0"),
    "--NCCL_MIN_NCHANNELS": (f"{TWO} --algo Ring", "--NCCL_MIN_NCHANNELS 32"),
    "--NCCL_MAX_NCHANNELS": (f"{TWO} --algo Ring", "--NCCL_MAX_NCHANNELS 2"),
    "--NCCL_P2P_NET_CHUNKSIZE": (PAIRED, "--NCCL_P2P_NET_CHUNKSIZE 16K"),
    "--NCCL_BUFFSIZE": ("all_reduce star:hosts=4,server=dgx-h100 -b 64M -e 64M --algo Tree", "--NCCL_BUFFSIZE 1M"),
    "--NCCL_NVLS_CHUNKSIZE": (f"{ONE} --algo NVLS", "--NCCL_NVLS_CHUNKSIZE 16K"),
    "--NCCL_IB_QPS_PER_CONNECTION": (
        NCCL_HASHED,
        "--NCCL_IB_QPS_PER_CONNECTION 8",
    ),
    "--datatype": (TWO, "-d half"),
    "--local_register": (ONE, "-R 2"),
    "--NCCL_WIN_ENABLE": (WINDOWS, "--NCCL_WIN_ENABLE 0"),
    "--NCCL_SYM_KERNEL": (WINDOWS, "--NCCL_SYM_KERNEL AllReduce_RSxLD_AGxST"),
    "--NCCL_SYM_CTAS": (WINDOWS, "--NCCL_SYM_CTAS 1"),
    "--NCCL_SYM_TMA_ENABLE": (
        "all_gather star:hosts=1,server=dgx-b200 -b 1M -e 1G -f 32 -R 2",
        "--NCCL_SYM_TMA_ENABLE 1",
    ),
    "--OFI_NCCL_TUNER_TYPE": (
        "all_reduce star:hosts=4,server=dgx-h100+EFA-4x100,speed=400GbE -b 256M -e 256M",
        "--OFI_NCCL_TUNER_TYPE Internal",
    ),
    "--NCCL_SYM_GIN_KERNELS_ENABLE": (
        f"{TWO} -R 2".replace("all_reduce", "all_gather"),
        "--NCCL_SYM_GIN_KERNELS_ENABLE 0",
    ),
    "--network": ("all_reduce star:hosts=2,server=dgx-h100,switch=SN5600 -b 1M -e 1G -f 32", "--network tcp"),
    "--paths": (
        NCCL_HASHED,
        "--paths spray",
    ),
    "--gpudirect": (TWO, "--no-gpudirect"),
    "--tuner": (TWO, "--tuner OUT.csv"),
    "--picture": (TWO, "--picture OUT.svg"),
    "--seed": (NCCL_HASHED, "--seed 2"),
    "--check": (ONE, "-c 0"),
}
NCCL_TEXTS = {"--explain": (ONE, "--explain")}

REDUCE = "allreduce star:hosts=4 -m 8:1M"
BUSY = f"{REDUCE} --ppn 4"
OSU_CASES = {
    "--ppn": (REDUCE, "--ppn 2"),
    "--mpi": (BUSY, "--mpi mvapich2"),
    "--coll": (BUSY, "--coll han"),
    "--UCX_TLS": (BUSY, "--UCX_TLS ib,self"),
    "--map-by": (BUSY, "--map-by node"),
    "--message-size": (REDUCE, "-m 4:1K"),
    "--as": ("allreduce DUMP -m 8:8", "--as 'dgx*=dgx-a100+4rails'"),
    "--servers": (REDUCE, "--servers 2"),
    "--sharp": (REDUCE, "--sharp"),
    "--fault": (REDUCE, "--fault slow:h2/1=4xHDR"),
    "--pods": (REDUCE, "--pods"),
    "--registration-cache": (REDUCE, "--no-registration-cache"),
    "--window-size": ("bw star:hosts=2 -m 1K:1K", "-W 1"),
    "--network": ("allreduce star:hosts=4,speed=100GbE -m 8:8", "--network tcp"),
    "--paths": ("alltoall fat-tree:hosts=8,radix=4,speed=100GbE -m 64K:64K", "--paths spray"),
    "--picture": (REDUCE, "--picture OUT.svg"),
    "--seed": ("alltoall fat-tree:hosts=8,radix=4,speed=100GbE -m 64K:64K", "--seed 2"),
}
OSU_TEXTS = {
    "--full": (REDUCE, "--full"),
    "--band": (REDUCE, "--no-band"),
    "--explain": (REDUCE, "--explain"),
}

SIM = "fat-tree:hosts=16,radix=8 --size 64K"
UNIFORM = "star:hosts=4 --traffic uniform --duration-us 20"
ETHERNET = "fat-tree:hosts=16,radix=8,speed=100GbE --size 64K"
SIM_CASES = {
    "--traffic": (SIM, "--traffic incast"),
    "--engine": (SIM, "--engine analytic"),
    "--size": (SIM, "--size 8K"),
    "--load": (UNIFORM, "--load 0.9"),
    "--duration-us": (UNIFORM, "--duration-us 40"),
    "--senders": (f"{SIM} --traffic incast", "--senders 3"),
    "--receiver": (f"{SIM} --traffic incast", "--receiver h9"),
    "--distance": (f"{SIM} --traffic shift", "--distance 5"),
    "--sl": ("torus:4x4,hosts=2 --size 64K --traffic all-to-all --routing-engine dfsssp", "--sl 0"),
    "--operation": (SIM, "--operation read"),
    "--transport": (SIM, "--transport uc"),
    "--network": (ETHERNET, "--network tcp"),
    "--paths": (SIM, "--paths adaptive"),
    "--lmc": ("dragonfly:p=1,a=4,h=1 --size 64K --paths lmc --lmc 1", "--lmc 2"),
    "--switching": (SIM, "--switching store-and-forward"),
    "--congestion-control": (f"{SIM} --traffic incast", "--congestion-control ib"),
    "--memory": (SIM, "--memory gpudirect"),
    "--routed": (f"{ETHERNET} --network roce-v1", "--routed"),
    "--mtu": (SIM, "--mtu 2048"),
    "--buffer": (f"{SIM} --traffic incast", "--buffer 8K"),
    "--skip-tolerance": ("star:hosts=2 --size 16M", "--skip-tolerance 0.01"),
    "--fault": (SIM, "--fault cut:leaf1/1@1us-2us"),
    "--plane-choice": ("star:hosts=4,server=host-xdr,planes=4 --size 64K", "--plane-choice message"),
    "--in-order": ("star:hosts=4,server=host-xdr,planes=4 --size 64K", "--in-order"),
    "--full-queue": (f"{ETHERNET} --network uet --traffic incast", "--full-queue drop"),
    "--link-retry": ("ERRING --network uet --size 256K", "--link-retry"),
    "--ack-every": (f"{ETHERNET} --network uet", "--ack-every 4K"),
    "--threads": ("fat-tree:hosts=256,radix=32 --size 4K", f"--threads {1 if len(os.sched_getaffinity(0)) > 1 else 2}"),
    "--routing-engine": ("torus:4x4,hosts=1 --size 64K", "--routing-engine up-down"),
    "--tables": ("fat-tree:hosts=16,radix=8 --size 64K", "--tables TABLES"),
    "--seed": (SIM, "--seed 2"),
    "--crossbar": (UNIFORM, "--crossbar one-read-port"),
    "--capture": (f"{SIM} --write-capture OUT.pcapng", "--capture leaf1/1"),
    "--write-capture": (f"{SIM} --capture leaf1/1", "--write-capture OUT.pcap.pcapng"),
    "--watch": (SIM, "--watch leaf1/1"),
    "--watch-every-us": (f"{SIM} --watch leaf1/1", "--watch-every-us 0.1"),
    "--picture-queue": (f"{SIM} --watch leaf1/1", "--picture-queue OUT.svg"),
    "--picture-watch": (f"{SIM} --watch leaf1/1", "--picture-watch OUT.svg"),
    "--picture-cdf": (SIM, "--picture-cdf OUT.svg"),
    "--write-messages": (SIM, "--write-messages OUT.csv"),
    "--write-samples": (f"{SIM} --watch leaf1/1", "--write-samples OUT.csv"),
    "--picture": (SIM, "--picture OUT.svg"),
    "--sweep-load": ("star:hosts=4 --duration-us 20", "--sweep-load 0.2,0.8"),
    "--write-traffic": (SIM, "--write-traffic OUT.csv"),
}

PLAN = "--gpus 128"
SERVED = "--gpus 16 --serve llama3-8b --rate 2"
PLAN_CASES = {
    "--gpus": (PLAN, "--gpus 256"),
    "--servers": ("--servers 16", "--servers 32"),
    "--server": (PLAN, "--server dgx-a100"),
    "--fabric": (PLAN, "--fabric roce-400"),
    "--switch": (PLAN, "--switch QM8700"),
    "--topology": (PLAN, "--topology fat-tree"),
    "--rails": (PLAN, "--rails 4"),
    "--planes": (PLAN, "--planes 2"),
    "--compare": (PLAN, "--compare"),
    "--oversubscription": ("--gpus 1024 --topology fat-tree", "--oversubscription 3"),
    "--grow-to": (PLAN, "--grow-to 1024"),
    "--ufm-hosts": (PLAN, "--ufm-hosts"),
    "--room": (PLAN, "--room ROOM"),
    "--prices": (PLAN, "--prices PRICES"),
    "--optimise": ("--gpus 1024", "--optimise"),
    "--train": ("--gpus 16", "--train llama3-8b"),
    "--serve": ("--gpus 16", "--serve llama3-8b --rate 2"),
    "--rate": (SERVED, "--rate 8"),
    "--input-len": (SERVED, "--input-len 300"),
    "--output-len": (SERVED, "--output-len 50"),
    "--weights": (SERVED, "--weights fp8"),
    "--slo-ttft": (SERVED, "--slo-ttft 40ms"),
    "--slo-tpot": (SERVED, "--slo-tpot 30ms"),
    "--folder": (PLAN, "--folder OUT.folder"),
    "--breakout": ("--gpus 128 --fabric roce-400", "--breakout 2"),
    "--storage-fabric": (PLAN, "--storage-fabric ndr:8"),
    "--management-fabric": (PLAN, "--management-fabric eth-100-tcp"),
    "--spares": (PLAN, "--spares 0.99"),
    "--lead-weeks": ("--gpus 128 --spares 0.99", "--lead-weeks 40"),
    "--failure-rates": ("--gpus 128 --spares 0.99", "--failure-rates RATES"),
    "--phases": (PLAN, "--phases PHASES"),
    "--quote": (PLAN, "--quote QUOTE"),
}

CASES: dict[str, dict[str, tuple[str, str]]] = {
    "train": TRAIN_CASES,
    "nccl": NCCL_CASES,
    "osu": OSU_CASES,
    "sim": SIM_CASES,
    "plan": PLAN_CASES,
}
TRAIN_TEXTS = {"--explain": (CUT, "--explain")}
PLAN_TEXTS = {"--explain": ("--gpus 64 --folder OUT.explained", "--explain")}
TEXTS: dict[str, dict[str, tuple[str, str]]] = {
    "train": TRAIN_TEXTS,
    "nccl": NCCL_TEXTS,
    "osu": OSU_TEXTS,
    "plan": PLAN_TEXTS,
}
REFUSES = {"--routed"}  # its effect: packets of RoCE v1 may not leave their leaf
FORMS = {"--json", "--csv"}  # tests/cli/test_output.py covers every command
# In command lines of nccl-tests and OSU's programs; the help says that they are ignored.
IGNORED = {"nccl": {"--op", "--ngpus", "--nthreads", "--iters", "--warmup_iters"}, "osu": {"--iterations", "--warmup"}}
ECHOED = {"options", "seed", "env", "args", "start_time", "end_time", "wall_s", "packet_hops_per_s", "description"}


SINGLE_SERVER = """
gpu: H100
gpus: 1
cpus: 1
cpu: {model: x, arch: x86_64, vendor: GenuineIntel, family_id: 6, model_id: 143}
pcie: 16xPCIe5
pcie_switches: 1
pcie_tree: {cpu0: [pcie0], pcie0: [gpu0, mlx5_0]}
compute: [mlx5_0]
compute_adapter: ConnectX-7
height_u: 1
power_w: 1000
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The paths of the files in the cases, by name."""
    folder = tmp_path_factory.mktemp("options")
    files.write(load("star:hosts=3,server=dgx-a100"), folder / "star.net", "ibnetdiscover")
    (folder / "single.yaml").write_text(SINGLE_SERVER)
    (folder / "room.toml").write_text("rack_power_w = 90000\n")
    (folder / "prices.toml").write_text('[QM9700]\nusd = 7\nsource = "x"\ndate = 2026-11-02\n')
    (folder / "rates.toml").write_text('[switch]\nper_year = 0.5\nsource = "x"\ndate = 2026-11-02\n')
    (folder / "erring.yaml").write_text(
        "topology: star:hosts=4,speed=100GbE\nfaults:\n  - {degrade: h1/1, bit_error_rate: 1e-6}\n"
    )
    (folder / "phases.toml").write_text(
        '[[phase]]\nname = "pilot"\ndate = 2027-03-01\nservers = 4\n'
        '[[phase]]\nname = "all"\ndate = 2027-09-01\nservers = 16\n'
    )
    (folder / "quote.csv").write_text("part,count,unit_usd\nQM9700,10,24000\n")
    app(["route", "fat-tree:hosts=16,radix=8", "--routing-engine", "min-hop", "--dump", str(folder / "tables")])
    return {
        "DUMP": str(folder / "star.net"),
        "SINGLE": str(folder / "single.yaml"),
        "ROOM": str(folder / "room.toml"),
        "PRICES": str(folder / "prices.toml"),
        "RATES": str(folder / "rates.toml"),
        "PHASES": str(folder / "phases.toml"),
        "QUOTE": str(folder / "quote.csv"),
        "TABLES": str(folder / "tables"),
        "ERRING": str(folder / "erring.yaml"),
        "OUT": str(folder / "out"),
    }


def words(text: str, places: dict[str, str]) -> list[str]:
    for name, path in places.items():
        text = text.replace(name, path)
    return shlex.split(text)


def instead(before: list[str], more: list[str]) -> list[str]:
    """Return the command line with these options instead; a first `-` drops all others."""
    if more[0] == "-":
        return more[1:]
    remaining, dropped = [], False
    for word in before:
        dropped = word in more if word.startswith("-") else dropped
        if not dropped:
            remaining.append(word)
        dropped = dropped and word.startswith("-")
    return [*remaining, *more]


def without_echo(said: Any) -> Any:
    """Return the result without the fields that repeat the request."""
    if isinstance(said, dict):
        return {key: without_echo(value) for key, value in said.items() if key not in ECHOED}
    return [without_echo(item) for item in said] if isinstance(said, list) else said


def result(command: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the command's result, or its refusal."""
    try:
        app([command, *arguments, "--json"])
    except ConfigError as error:
        return str(error)
    return without_echo(json.loads(capsys.readouterr().out))


KNOWN: dict[tuple[str, ...], Any] = {}  # results of command lines that many options change


@pytest.mark.parametrize("command", CASES)
def test_every_option_has_a_case(command):
    options = {argument.names[0] for argument in app[command].assemble_argument_collection() if argument.names}
    cased = {*CASES[command], *TEXTS.get(command, ()), *IGNORED.get(command, ()), *FORMS}
    assert {name for name in options if name.startswith("--")} == cased


EVERY = [(command, option) for command, cases in CASES.items() for option in cases]


@pytest.mark.parametrize(("command", "option"), EVERY, ids=[f"{one}{two}" for one, two in EVERY])
def test_an_option_changes_the_result(command, option, places, capsys):
    base, more = CASES[command][option]
    before = words(base, places)
    after = instead(before, words(more, places))
    out = next((Path(word) for word in after if word.startswith(places["OUT"])), None)
    results = result(command, after, capsys)
    assert isinstance(results, dict | list) or option in REFUSES, results
    if out is not None:
        assert out.exists()
        return
    base_case = (command, *before)
    if base_case not in KNOWN:
        KNOWN[base_case] = result(command, before, capsys)
    assert results != KNOWN[base_case]


TEXT = [(command, option) for command, cases in TEXTS.items() for option in cases]


@pytest.mark.parametrize(("command", "option"), TEXT, ids=[f"{one}{two}" for one, two in TEXT])
def test_an_option_of_columns_changes_the_table(command, option, places, capsys):
    tables = []
    base, more = TEXTS[command][option]
    for arguments in (words(base, places), words(f"{base} {more}", places)):
        app([command, *arguments])
        tables.append(capsys.readouterr().out)
    assert tables[0] != tables[1]
    with pytest.raises(ConfigError, match=f"{more} .*eave it out"):
        app([command, *words(f"{base} {more}", places), "--json"])


@pytest.mark.parametrize("command", IGNORED)
def test_help_of_an_ignored_option_says_that_it_has_no_effect(command):
    text = inspect.getdoc(importlib.import_module(f"weft.cli.{command}").__dict__[command]) or ""
    assert text.count("No effect; accepted for compatibility") == len(IGNORED[command])


IDLE = [
    ("train", f"{CUT} --seq 2048 --zero 0", "--no-overlap-param-gather", "gathers none"),
    ("train", "llama3-8b --gpus 8 --tp 8", "--no-overlap-grad-reduce", "one copy"),
    ("train", "llama3-8b --gpus 8 --tp 8", "--zero 3", "one copy"),
    ("train", "llama3-8b --gpus 16 --tp 1 --zero 3", "--no-sequence-parallel", "tp = 1"),
    ("train", "llama3-8b --gpus 16 --tp 1 --zero 3", "--no-tp-comm-overlap", "tp = 1"),
    ("train", f"{CUT} --no-sequence-parallel", "--no-tp-comm-overlap", "all-reduce"),
    ("train", CUT, "--no-overlap-p2p", "--vp 2"),
    ("train", CUT, "--overlap-moe", "no experts"),
    ("train", CUT, "--etp 2", "no experts"),
    ("train", CUT, "--dispatcher alltoall", "no experts"),
    ("train", CUT, "--fp8-dispatch", "no experts"),
    ("train", CUT, "--imbalance 1.5", "no experts"),
    ("train", "llama3-8b --gpus 8", "--imbalance 1.5", "no experts"),
    ("train", "llama3-8b --gpus 8 --search", "--fp8-dispatch", "no experts"),
    ("train", CUT, "--recompute moe_act,moe", "no experts"),
    ("train", CUT, "--recompute mla_up_proj", "not MLA"),
    ("train", f"{CUT} --seq 2048 --no-fused-attention", "--attention fa2", "written to memory"),
    ("train", CUT, "--attention fa4", "there is no attention 'fa4'"),
    ("train", f"{CUT} --server dgx-a100", "--attention fa3", "capability 9 alone"),
    ("train", CUT, "--cuda-graphs attn", "no experts"),
    ("train", CUT, "--lora-modules linear_qkv", "without lora"),
    ("train", f"{CUT} --precision fp16", "--no-grad-reduce-in-fp32", "16 bits"),
    ("train", "llama3-8b --gpus 8 --tp 8", "--network tcp", "over a network"),
    ("train", "llama3-8b --gpus 8 --tp 8", "--paths ecmp", "over a network"),
    (
        "train",
        "llama3-8b --tp 2 --fabric star:hosts=2,server=dgx-h100",
        "--server dgx-a100",
        "already defines its servers",
    ),
    ("train", f"{CUT} --search".replace(" --engine analytic", ""), "--tokens 15T", "--search"),
    ("train", f"{CUT} --search".replace(" --engine analytic", ""), "--slowest 1.5", "--search"),
    ("train", f"{CUT} --search".replace(" --engine analytic", ""), "--engine packet", "--search"),
    ("train", "--validate", "--tp 2", "--validate prints published steps"),
    ("train", CUT, "--strong", "--scale"),
    ("train", CUT, "--storage-gbyte-s 0", "above 0"),
    ("train", CUT, "--vp 2", "pp = 1"),
    ("train", CUT, "--ep 2", "is dense"),
    ("train", CUT, "--checkpoint-waits", "--goodput"),
    ("nccl", ONE, "--network tcp", "over a network"),
    ("nccl", ONE, "--paths ecmp", "over a network"),
    ("nccl", ONE, "--no-gpudirect", "over a network"),
    ("nccl", f"{TWO}", "-i 1M", "by one of them"),
    ("osu", "latency star:hosts=2", "--ppn 2", "between two processes"),
    ("osu", "latency star:hosts=2", "--coll han", "between two processes"),
    ("osu", "latency star:hosts=2", "-W 4", "windows"),
    ("osu", "latency star:hosts=2", "--full", "between two processes"),
    ("osu", "barrier star:hosts=2", "-m 8", "no bytes"),
    ("osu", REDUCE, "--map-by node", "as they do without"),
    ("osu", "allreduce star:hosts=1 --ppn 4", "--network infiniband", "over a network"),
    ("osu", "allreduce star:hosts=1 --ppn 4", "--paths table", "over a network"),
    ("osu", "allreduce star:hosts=1 --ppn 4", "--no-registration-cache", "not registered"),
    ("osu", "latency star:hosts=2", "--sharp", "not for latency"),
    ("osu", f"{REDUCE} --mpi mvapich2", "--coll han", "Open MPI's"),
    ("sim", f"{SIM} --engine flow", "--buffer 8K", "the flow engine"),
    ("sim", f"{SIM} --engine flow", "--sl 0", "the flow engine has none"),
    ("sim", f"{SIM} --engine auto", "--sweep-load 0.1", "by one engine"),
    ("sim", f"{SIM} --engine analytic", "--skip-tolerance 0.1", "the analytic engine"),
    ("sim", f"{SIM} --engine analytic", "--threads 2", "the analytic engine"),
    ("sim", SIM, "--threads 2", "a fabric of fewer than 256 hosts or of one leaf switch runs on one thread"),
    ("sim", f"{SIM} --engine flow", "--congestion-control ib", "the flow engine"),
    ("sim", f"{SIM} --engine flow", "--watch leaf1/1", "the flow engine has no queues"),
    ("sim", SIM, "--watch-every-us 2", "--watch"),
    ("sim", SIM, "--write-samples OUT.csv", "--watch"),
    ("sim", f"{SIM} --engine flow", "--fault cut:leaf1/1@1us-2us", "--engine packet"),
    ("sim", SIM, "--fault cut:leaf1/1@9s-", "after the end of the run"),
    ("sim", SIM, "--routed", "roce-v1"),
    ("sim", f"{ETHERNET} --network uet", "--link-retry", "has bit errors"),
    ("sim", f"{ETHERNET} --network uet --engine flow", "--full-queue drop", "no effect on flows"),
    ("sim", SIM, "--load 0.5", "uniform"),
    ("sim", SIM, "--lmc 2", "only --paths lmc uses"),
    ("sim", "torus:4x4 --size 64K", "--paths adaptive", "has nothing to choose on torus:4x4"),
    ("sim", "dragonfly:p=1,a=4,h=1 --size 64K", "--paths ecmp", "has nothing to choose on dragonfly"),
    ("sim", "torus:5x3 --size 64K", "--paths lmc", "add --lmc 2"),
    ("sim", "torus:5x3 --size 64K --engine flow", "--paths ugal", "use --engine packet"),
    ("sim", SIM, "--paths valiant", "has switches without hosts and is no Dragonfly+"),
    ("sim", "star:hosts=4 --size 64K", "--paths par", "of 3 switches or more"),
    ("sim", SIM, "--senders 2", "incast"),
    ("plan", "fat-tree:hosts=16", "--rails 2", "is the fabric to plan"),
]


@pytest.mark.parametrize(("command", "base", "more", "why"), IDLE, ids=[f"{one[0]} {one[2]}" for one in IDLE])
def test_an_option_that_could_change_nothing_is_refused(command, base, more, why, places):
    with pytest.raises(ConfigError) as refused:
        app([command, *words(base, places), *words(more, places)])
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [
        ("sendrecv star:hosts=2,server=dgx-h100 -b 1M -e 1M", "NCCL_ALGO=Ring"),
        (ONE, "NCCL_COLLNET_ENABLE=1"),
        (ONE, "NCCL_IB_QPS_PER_CONNECTION=4"),
        (ONE, "NCCL_P2P_NET_CHUNKSIZE=64K"),
        (TWO, "NCCL_SYM_CTAS=4"),
    ],
)
def test_a_variable_that_nccl_does_not_look_at_is_ignored_with_a_note(arguments, variable, monkeypatch, capsys):
    name, _, value = variable.partition("=")
    app(["nccl", *arguments.split()])
    without = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    monkeypatch.setenv(name, value)
    app(["nccl", *arguments.split()])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("#")] == without
    assert f"# Of NCCL's environment, without effect here: {name}" in lines
