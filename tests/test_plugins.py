"""Extension registries: plugins as installed packages and as files, and their errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.warm import WARM

from weft.errors import ConfigError
from weft.sim.congestion import Control

pytestmark = pytest.mark.usefixtures("warm")
EXAMPLES = Path(__file__).parents[1] / "examples" / "plugins"


def install(folder: Path, project: dict) -> Path:
    """Install a package of this pyproject.toml as an installer does, without the Python files."""
    about = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines))
    return folder


def weft(*words: object, here: Path | None = None, site: Path | None = None, plugins: str = "", cold: bool = False):
    """Run the command with these packages and plugins; a cold one imports weft first, as for a user."""
    environment = {**os.environ, "WEFT_PLUGINS": plugins} | ({"PYTHONPATH": str(site)} if site else {})
    command = [*([sys.executable, "-P", "-m", "weft"] if cold else [os.environ[WARM]]), *map(str, words)]
    return subprocess.run(command, env=environment, cwd=here, capture_output=True, text=True, check=False)


def printed(*words: object, **given) -> str:
    done = weft(*words, **given)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(*words: object, **given) -> str:
    done = weft(*words, **given)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder of packages with examples/plugins in it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLES / "weft_examples", folder / "weft_examples")
    return install(folder, tomllib.loads((EXAMPLES / "pyproject.toml").read_text())["project"])


def entry(group: str, name: str, place: str, package: str = "acme") -> dict:
    return {"name": package, "version": "1.0", "entry-points": {group: {name: place}}}


# -- a package ---------------------------------------------------------------------------------------------------------


def test_a_topology_of_a_package_is_in_the_list_and_can_be_built(site):
    assert any(load["name"] == "ring" for load in json.loads(printed("topologies", "--json", site=site, cold=True)))
    assert "ring:switches=5,hosts=2" in printed("show", "ring:5,hosts=2", site=site)
    assert "did you mean ring" in refusal("show", "rinf:5", site=site)


def test_a_routing_engine_of_a_package_routes_and_is_suggested(site):
    assert "no deadlock" in printed("route", "ring:5", "--routing-engine", "spanning-tree", site=site)
    assert "did you mean spanning-tree" in refusal("route", "ring:5", "--routing-engine", "spaning-tree", site=site)


def test_a_collective_of_a_package_is_proved_and_run(site):
    out = printed("sim", "star:hosts=4", "--traffic", "all_reduce:naive", "--engine", "analytic", site=site)
    assert "naive all-reduce of 1,048,576 bytes: 6 messages of 1 MiB" in out


def test_a_scenario_of_a_package_is_a_command_with_flags_and_a_picture(site, tmp_path):
    facts = json.loads(
        printed(
            "scenario",
            "distance",
            "--switches",
            3,
            "--size",
            "4K",
            "--picture",
            tmp_path / "a.svg",
            "--json",
            site=site,
        )
    )
    assert facts["options"] == {"switches": 3, "size_bytes": 4096, "seed": 1}
    assert (tmp_path / "a.svg").is_file()


def test_a_file_format_of_a_package_is_written_read_and_listed(site, tmp_path):
    printed("export", "ring:5", "-o", tmp_path / "ring.cables", site=site)
    assert "5 switches" in printed("show", tmp_path / "ring.cables", site=site)
    assert "on each line a cable" in printed("export", site=site)


def test_a_congestion_control_of_a_package_slows_senders_down(site):
    run = ("sim", "star:hosts=9,speed=400GbE", "--traffic", "incast", "--size", "256K", "--json")
    marked = {}
    for name in ("none", "halving"):
        facts = json.loads(printed(*run, "--congestion-control", name, site=site))
        assert facts["options"]["congestion_control"] == name
        marked[name] = facts["marked_packets"]
    assert marked["none"] == 0 < marked["halving"]
    output = refusal("sim", "star:hosts=9", "--congestion-control", "halving", site=site)
    assert "halving is for roce and roce-v1, not for infiniband: use none" in output


def test_an_adaptive_routing_policy_of_a_package_chooses_ports(site):
    run = ("sim", "fat-tree:hosts=16,radix=8", "--paths", "two-choices", "--json")
    alone = ("--plugin", site / "weft_examples" / "two_choices.py")  # the same file as a second module
    output = [json.loads(printed(*run, *alone)), json.loads(printed(*run, site=site))]
    assert output[0]["options"]["paths"] == "two-choices"
    assert output[0]["digest"] == output[1]["digest"]
    assert "did you mean two-choices" in refusal("sim", "star:hosts=4", "--paths", "two-choice", site=site)


# -- a file ------------------------------------------------------------------------------------------------------------

PLUGIN = """
from weft.fabric.topologies.star import star
from weft.fabric.topologies.registry import topology

@topology("pair", example="pair:2")
def pair(hosts: __import__("typing").Annotated[int, "hosts"]):
    "A star of few."
    return star(hosts)

ENTRY_POINTS = {"weft.topologies": {"pair": pair}}
"""


@pytest.mark.parametrize(
    "words",
    [
        ("--plugin", "mine.py", "show", "pair:2"),
        ("show", "--plugin=mine", "pair:2"),
        ("--plugin", "{here}/mine.py", "show", "pair:2"),
    ],
)
def test_a_plugin_file_adds_its_entry_points(words, tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    assert "pair:hosts=2" in printed(*(word.format(here=tmp_path) for word in words), here=tmp_path)


def test_processes_of_a_command_have_its_plugins(tmp_path, monkeypatch):
    from weft.plugins import VARIABLE, use

    (tmp_path / "yours.py").write_text(PLUGIN)
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    use("yours.py")
    assert os.environ[VARIABLE] == str(tmp_path / "yours.py")
    assert "pair:hosts=2" in printed("show", "pair:2", plugins=os.environ[VARIABLE])


def test_flags_of_a_program_that_is_run_are_the_programs():
    from weft.cli import _load_plugins

    words = ["exec", "h1", "program", "--plugin", "its-own"]
    assert _load_plugins(words) == words


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_plugin_that_is_not_there_or_says_nothing_is_named(tmp_path):
    output = refusal("--plugin", "nowhere", "links")
    assert "plugin nowhere: neither a file nowhere.py nor a module that Python can import" in output
    assert "plugin nowhere.py: no such file" in refusal("--plugin", "nowhere.py", "links")
    (tmp_path / "empty.py").write_text("")
    assert "must define ENTRY_POINTS = " in refusal("--plugin", "empty.py", "links", here=tmp_path)
    (tmp_path / "odd.py").write_text('ENTRY_POINTS = {"weft.topology": {}}')
    assert "did you mean weft.topologies" in refusal("--plugin", "odd.py", "links", here=tmp_path)
    (tmp_path / "json.py").write_text("ENTRY_POINTS = {}")
    assert "rename the file" in refusal("--plugin", "json.py", "links", here=tmp_path)


def test_a_broken_package_fails_only_commands_that_name_it(tmp_path):
    site = install(tmp_path, entry("weft.topologies", "ring", "acme.fabrics:ring"))
    assert "acme 1.0: weft.topologies ring = acme.fabrics:ring cannot be imported" in refusal(
        "show", "ring:5", site=site
    )
    assert "star:hosts=4" in printed("show", "star:hosts=4", site=site)


BROKEN = """
from weft.fabric.topologies.star import star
from weft.fabric.topologies.registry import topology

@topology("pair", example="pair:2")
def pair(hosts: int):
    "A parameter without a meaning."
    return star(hosts)
"""
RAISES = """
class Zero:
    name, guarantee = "zero", "none"

    def route(self, subnet, options):
        return 1 // 0

class Fails:
    def __init__(self):
        raise KeyError("x")

ENTRY_POINTS = {"weft.routing": {"zero": Zero, "fails": Fails}}
"""


def test_a_broken_plugin_is_left_out_of_lists_with_its_reason(tmp_path):
    """Reasons: an import fails, a parameter has no help, an object has the wrong type. All other plugins are listed."""
    (tmp_path / "acme.py").write_text(BROKEN)
    points = {
        "weft.topologies": {"lost": "nowhere:lost", "pair": "acme:pair", "odd": "json:dumps"},
        "weft.files": {"mine": "nowhere:mine"},
        "weft.collectives": {"mine": "nowhere:mine"},
    }
    site = install(tmp_path, {"name": "acme", "version": "1.0", "entry-points": points})
    listed = weft("topologies", "--json", site=site)
    assert listed.returncode == 0
    assert {"star", "torus"} <= {load["name"] for load in json.loads(listed.stdout)}
    for output in (
        "lost = nowhere:lost cannot be imported",
        "parameter hosts needs a type and a meaning",
        "odd is <f",
    ):
        assert output in listed.stderr
    assert "weft.files mine = nowhere:mine" in weft("export", site=site).stderr
    assert "5 switches" in printed("show", "torus:5", site=site)
    out = printed("sim", "star:hosts=4", "--traffic", "all_reduce:ring", "--engine", "analytic", site=site)
    assert "ring all-reduce" in out
    assert "did you mean ring" in refusal("sim", "star:hosts=4", "--traffic", "all_reduce:rin", site=site)


def test_a_broken_file_of_weft_plugins_ends_no_command(tmp_path):
    (tmp_path / "acme.py").write_text("1 / 0")
    done = weft("show", "star:hosts=4", plugins=str(tmp_path / "acme.py"))
    assert done.returncode == 0
    assert "star:hosts=4" in done.stdout
    assert "acme.py cannot be imported: ZeroDivisionError: division by zero; ignored" in done.stderr
    assert "ZeroDivisionError" in refusal("--plugin", tmp_path / "acme.py", "show", "star:hosts=4")


def test_an_engine_that_raises_is_named_and_ends_no_comparison(tmp_path):
    (tmp_path / "acme.py").write_text(RAISES)
    out = printed("--plugin", "acme", "route", "star:hosts=4", "--compare", here=tmp_path)
    assert "not zero: routing engine zero failed: ZeroDivisionError" in out
    assert "not fails: acme.py: weft.routing fails: Fails() failed: KeyError: 'x'" in out
    assert "min-hop" in out
    output = refusal("--plugin", "acme", "route", "star:hosts=4", "--routing-engine", "zero", here=tmp_path)
    assert "routing engine zero failed: ZeroDivisionError" in output


def test_a_thing_of_the_wrong_kind_is_refused_with_the_rule(tmp_path):
    site = install(tmp_path, entry("weft.routing", "fast", "json:dumps"))
    output = refusal("route", "star:hosts=4", "--routing-engine", "fast", site=site)
    assert "acme 1.0: weft.routing fast is <function dumps" in output
    assert "must be a class or object with this name" in output


def test_a_kernel_that_cannot_be_compiled_is_named(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from weft.sim.adaptive import Policy\n"
        "def choose(loads, ports, number): return ports.nothing\n"
        "ENTRY_POINTS = {'weft.paths': {'mine': Policy(name='mine', choose=choose)}}"
    )
    output = refusal("--plugin", "mine", "sim", "fat-tree:hosts=16,radix=8", "--paths", "mine", here=tmp_path)
    assert "numba cannot compile policy mine: choose(loads, ports, number)" in output


def test_a_control_for_lossy_networks_needs_on_loss():
    with pytest.raises(ConfigError, match="cubic is for tcp: it needs on_ack, on_loss and on_timeout"):
        Control(name="cubic", networks=("tcp",))


def test_two_things_of_one_name_are_refused_and_one_thing_twice_is_not(tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    site = install(tmp_path, entry("weft.topologies", "pair", "mine:pair"))
    assert "pair:hosts=2" in printed("--plugin", "mine", "show", "pair:2", site=site)
    install(tmp_path, entry("weft.topologies", "star", "mine:pair", package="rival"))
    (tmp_path / "other.py").write_text(PLUGIN)
    output = refusal("--plugin", "other.py", "show", "pair:2", site=site, here=tmp_path)
    assert "acme 1.0 and other.py each define 'pair' in weft.topologies" in output
    assert "rival 1.0: weft.topologies star" in refusal("show", "star:hosts=4", site=site)


def test_a_broken_scenario_is_reported_in_the_list(tmp_path):
    site = install(tmp_path, entry("weft.scenarios", "mine", "acme:mine"))
    assert "cannot be imported" in printed("scenario", site=site)
    assert "cannot be imported" in refusal("scenario", "mine", site=site)


def test_help_loads_no_plugin(tmp_path):
    """It neither searches installed packages nor imports their plugins."""
    code = "import sys; from weft.cli import app; app(['--help'])\nassert 'weft.plugins' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
