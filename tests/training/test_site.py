"""Sites of jobs."""

from dataclasses import replace

import pytest

from weft.collectives.nccl.cluster import from_fabric
from weft.errors import ConfigError, FileError
from weft.fabric.spec import load
from weft.sim.engine import Memory, Network, Paths
from weft.training.job import run_job
from weft.training.parallel import Layout
from weft.training.site import find_site
from weft.training.transformer import find


def test_a_gpu_has_the_changes_of_its_server_template(tmp_path):
    """Products and attention are slower at a lower clock, and the rest with a slower memory."""
    path = tmp_path / "limited.yaml"
    path.write_text("like: dgx-h100\ngpu_changes: {sustained: 0.35, memory_gbyte: 94, memory_gbyte_s: 1675}\n")
    plain, limited = (find_site(gpus=16, server=server) for server in ("dgx-h100", str(path)))
    layout, model = Layout(gpus=16, tp=2, global_batch=32, seq=8192), find("llama3-8b")
    usual, changed = (run_job(model, layout, site).step for site in (plain, limited))
    assert (limited.gpu.entry.memory_gbyte, limited.gpu.entry.name) == (94, "H100")
    assert plain.gpu.entry.memory_gbyte == 80
    assert changed.parts["products"] / usual.parts["products"] == pytest.approx(2, abs=0.05)
    assert changed.parts["attention"] / usual.parts["attention"] == pytest.approx(2, abs=0.05)
    assert changed.parts["memory"] / usual.parts["memory"] == pytest.approx(2, abs=0.05)
    assert find_site(gpus=16, server=f"{path}+7rails").gpu == limited.gpu
    assert find_site(f"star:hosts=2,server={path}").gpu == limited.gpu


@pytest.mark.parametrize(
    ("gpus", "racks"),
    [
        (64, (1, "gb200-nvl72")),
        (72, (1, "gb200-nvl72")),
        (144, (2, "gb200-nvl72")),
        (128, (2, "gb200-nvl64")),
        (576, (8, "gb200-nvl72")),
        (512, (8, "gb200-nvl64")),
    ],
)
def test_jobs_that_do_not_fill_racks_use_sixteen_trays_of_each(gpus, racks):
    """As published jobs do: 64 of 72 GPUs. Jobs that fill whole racks, or a part of one, do not change."""
    site = find_site(gpus=gpus, server="gb200-nvl72")
    assert (site.servers, site.template.name) == racks
    assert site.gpus == gpus


def test_racks_without_a_fitting_number_of_trays_are_refused():
    with pytest.raises(ConfigError, match="100 is not a multiple of the 72 GPUs of a gb200-nvl72; nearest: 72 or 128"):
        find_site(gpus=100, server="gb200-nvl72")


def test_a_power_limit_slows_the_step_and_widens_its_band(tmp_path):
    path = tmp_path / "limited.yaml"
    path.write_text("like: dgx-h100\ngpu_changes: {power_limit_w: 500}\n")
    layout, model = Layout(gpus=8, tp=2, global_batch=16, seq=8192), find("llama3-8b")
    usual, limited = (run_job(model, layout, find_site(gpus=8, server=each)) for each in ("dgx-h100", str(path)))
    assert 1.05 < limited.step.step_s / usual.step.step_s < (700 / 500) ** (1 / 3)
    assert limited.band.high / limited.band.low > 1.1 * usual.band.high / usual.band.low
    assert "a limit of 500 W instead of 700, with which no steps are published" in limited.band.far
    assert not usual.band.far


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ("{sustained: 1.5}", "a share above 0, at most 1"),
        ("{memory_gbyte_s: -1}", "a number above 0"),
        ("{memory_gbyte: nan}", "a number above 0"),
        (
            "{power_w: 500}",
            "expected power_limit_w, or another of the keys memory_gbyte, memory_gbyte_s",
        ),
        ("{peak_tflop_s: {bf16: 800}}", "a dense peak for each of bf16, fp16, fp8"),
    ],
)
def test_invalid_changes_of_a_gpu_are_refused(tmp_path, changes, why):
    path = tmp_path / "odd.yaml"
    path.write_text(f"like: dgx-h100\ngpu_changes: {changes}\n")
    with pytest.raises(FileError, match=why):
        find_site(gpus=16, server=str(path))


@pytest.mark.parametrize(
    ("server", "fabric", "spec", "template"),
    [
        ("dgx-h100", None, "superpod:su=4,switch=QM9700", "dgx-h100"),
        ("dgx-a100", None, "superpod:su=7,server=dgx-a100,servers=128,switch=QM8700", "dgx-a100"),
        ("dgx-h100", "roce-400", None, "dgx-h100+ConnectX-7-EN"),
        ("dgx-h100", "eth-100-tcp", None, "dgx-h100+ConnectX-5-EN"),
    ],
)
def test_a_fabric_by_name_joins_so_many_servers(server, fabric, spec, template):
    site = find_site(fabric, gpus=1024, server=server)
    assert (site.gpus, site.servers, site.template.name) == (1024, 128, template)
    assert spec in (None, site.spec)
    assert len(load(site.spec).servers) == 128


def test_network_rules_are_those_of_the_fabric_unless_given():
    tcp = find_site("eth-100-tcp", gpus=16).options
    assert (tcp.network, tcp.paths, tcp.memory) == (Network.TCP, Paths.ECMP, Memory.HOST)
    messages = find_site("ndr", gpus=16, paths="table", seed=3).options
    assert (messages.network, messages.paths, messages.memory, messages.seed) == (
        Network.INFINIBAND,
        Paths.TABLE,
        Memory.GPUDIRECT,
        3,
    )


@pytest.mark.parametrize("name", ["ndr", "xdr", "roce-100", "opa-400"])
def test_a_fabric_that_is_built_whole_has_the_cluster_of_its_template(name):
    site = find_site(name, gpus=16)
    assert site.cluster == from_fabric(site.ranks.fabric)


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ({"fabric": "eth-400-tcp"}, "400G is no faster than 100G"),
        ({"server": "gb300-nvl72"}, "GB300: the catalog has the same peak rates and memory bandwidth for GB200"),
        ({"fabric": "ndr"}, None),
    ],
)
def test_a_site_says_where_another_fabric_or_gpu_gives_the_same_result(given, note):
    notes = find_site(gpus=144, **given).notes
    assert len(notes) == (note is not None)
    assert note is None or note in notes[0]


def test_one_server_needs_no_fabric():
    assert find_site("ndr", gpus=8).networks == {}


def test_servers_are_counted_or_named():
    assert find_site("ndr", servers="4").gpus == 32
    spec = "fat-tree:hosts=6,server=dgx-h100,radix=32"
    assert find_site(spec, servers="2").ranks.servers == ("dgx1", "dgx2")
    named = find_site(spec, servers="dgx5,dgx2..3")
    assert (named.gpus, named.ranks.servers) == (24, ("dgx5", "dgx2", "dgx3"))
    with pytest.raises(ConfigError, match="use --gpus 16 or --servers 2, not both"):
        find_site(spec, gpus=16, servers="2")
    with pytest.raises(ConfigError, match="--servers dgx1: ndr has no server names"):
        find_site("ndr", servers="dgx1")


def test_a_file_with_any_name_is_a_fabric(tmp_path, monkeypatch):
    """And is distinguished from a misspelt fabric of the catalog."""
    (tmp_path / "mine").write_text("no fabric")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match="mine"):
        find_site("mine")


@pytest.mark.parametrize(("server", "gpus"), [("dgx-h100", 1), ("dgx-h100", 4), ("gb200-nvl72", 8), ("rtx-4090-8", 2)])
def test_a_job_may_have_part_of_one_server(server, gpus):
    """It takes as long as on a server that has no more of them."""
    site = find_site(gpus=gpus, server=server)
    assert (site.gpus, site.servers, site.names) == (gpus, 1, ())
    item = replace(find("gpt-1.7b"), layers=4)
    layout = Layout(gpus=gpus, tp=gpus, global_batch=8, seq=item.seq)
    run = run_job(item, layout, site)
    assert (run.step.parts["tp"] > 0, run.step.parts["dp"]) == (gpus > 1, 0)


def test_half_of_a_server_is_as_fast_as_a_server_of_half_the_size():
    item = replace(find("gpt-1.7b"), layers=4)
    layout = Layout(gpus=4, tp=4, global_batch=8, seq=item.seq)
    part, half = (run_job(item, layout, find_site(gpus=4, server=name)) for name in ("dgx-h100", "hgx-h100-4"))
    assert part.step.parts["products"] == half.step.parts["products"]
    assert part.step.parts["tp"] == pytest.approx(half.step.parts["tp"], rel=0.5)
