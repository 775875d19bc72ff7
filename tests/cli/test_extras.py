"""Commands without the packages of extras: the small ones work, others name the extra."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import weft
from weft.errors import EXTRA_OF

ROOT = Path(weft.__file__).parents[2]
# A Python that has only what `pip install weft-fabric` installs: it runs commands and prints their exit status.
BARE = f"""
import sys
for name in {sorted(EXTRA_OF)}:
    sys.modules[name] = None
from weft.cli import _run
for words in sys.argv[1:]:
    sys.argv = ["weft", *words.split()]
    print(words.split()[0], _run())
"""


def test_the_distributions_name_is_a_command_of_its_own():
    """`uvx weft-fabric` and `pipx run weft-fabric` run it; `uvx weft` would fetch another project."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"][project["name"]] == project["scripts"]["weft"]
    code = "import sys; sys.argv = ['/bin/weft-fabric', 'show', '--help']; from weft.cli import main; main()"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("Usage: weft show ")


def test_commands_without_extras_work_or_name_the_extra(tmp_path):
    commands = [
        f"draw star:hosts=2 -o {tmp_path}/fabric.svg",
        "plan --gpus 16 --folder plan",
        "doctor",
        f"draw star:hosts=2 -o {tmp_path}/fabric.png",
        "history --database history.db",
        "serve star:hosts=2",
    ]
    done = subprocess.run(
        [sys.executable, "-c", BARE, *commands], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    statuses = re.findall(r"^(draw|plan|doctor|history|serve) (\d)$", done.stdout, re.M)
    expected = [("draw", 0), ("plan", 0), ("doctor", 0), ("draw", 2), ("history", 2), ("serve", 2)]
    assert statuses == [(command, str(status)) for command, status in expected]
    assert [line for line in done.stderr.splitlines() if "pip install" in line] == [
        "weft: matplotlib is not installed: pip install 'weft-fabric[plots]'",
        "weft: sqlalchemy is not installed: pip install 'weft-fabric[serve]'",
        "weft: starlette is not installed: pip install 'weft-fabric[serve]'",
    ]


def imported_packages() -> set[str]:
    """Return the third-party packages that weft's modules import, without those of the openstack extra and pytest."""
    found = set()
    for path in (ROOT / "src" / "weft").rglob("*.py"):
        if path.is_relative_to(ROOT / "src/weft/clouds/openstack") or path.name == "testing.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module).partition(".")[0])
            elif isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
    return found - set(sys.stdlib_module_names) - {"weft"}


def test_every_imported_package_is_a_dependency_or_has_an_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[>=<\[]", each)[0] for each in project["dependencies"]}
    installed = {{"pyyaml": "yaml"}.get(name, name) for name in names} | {"llvmlite"}  # a dependency of numba
    assert imported_packages() - installed - set(EXTRA_OF) - {"pyverbs", "IPython", "mpi4py"} == set()
    assert set(EXTRA_OF.values()) <= set(project["optional-dependencies"])
