"""Build the documentation site: the pages of docs/, and those that are made from weft itself.

python docs/site/build.py out/site          into out/site/html
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from weft.cli import COMMANDS, app, use_whole_docstring

ROOT = Path(__file__).parents[2]
# What a program outside is meant to import, in the order in which one meets it.
MODULES = (
    "weft.fabric.spec", "weft.fabric.model", "weft.fabric.views", "weft.fabric.faults", "weft.fabric.summary",
    "weft.fabric.files", "weft.draw", "weft.routing.route", "weft.routing.engine", "weft.routing.check",
    "weft.routing.quality", "weft.sim.engine", "weft.sim.traffic", "weft.sim.result", "weft.collectives",
    "weft.compare", "weft.lab.lab", "weft.mad.carrier", "weft.verbs.pyverbs.device", "weft.verbs.pyverbs.qp",
    "weft.verbs.pyverbs.wr",
)  # fmt: skip
_OUTSIDE = re.compile(r"\[([^]]+)\]\((?:\.\./)+([A-Z]+\.md|(?:src|tests|examples)/[\w./-]+)\)")

_IMPORTS = re.compile(r"^from (weft\.[\w.]+) import ", re.M)
_OPTIONAL = re.compile(r"\[([^]`]+)\](?!\()")


def main(folder: Path) -> int:
    pages = folder / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("site"))
    for page in pages.rglob("*.md"):  # what lies outside of docs/ is named, not linked: the site stands alone
        page.write_text(_OUTSIDE.sub(r"\1 (`\2`)", page.read_text(encoding="utf-8")), encoding="utf-8")
    (pages / "reference").mkdir()
    (pages / "reference" / "commands.md").write_text(commands(), encoding="utf-8")
    (pages / "reference" / "python.md").write_text(python(), encoding="utf-8")
    for module in MODULES:
        copy_source(module, folder / "src")
    shutil.copy(ROOT / "docs/site/zensical.toml", folder)
    return subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder, check=False).returncode


def copy_source(module: str, target: Path) -> None:
    """With the packages that it is in, and what it imports: else all of weft would be read to describe some of it."""
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        name = Path(*parts[:depth])
        file = name / "__init__.py" if (ROOT / "src" / name).is_dir() else name.with_suffix(".py")
        if (target / file).exists():
            continue
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "src" / file, target / file)
        for other in _IMPORTS.findall((target / file).read_text(encoding="utf-8")):
            copy_source(other, target)


def commands() -> str:
    for name in COMMANDS:
        use_whole_docstring(name)
    text: str = app.generate_docs(heading_level=1)
    said = "# Commands\n\nMade from the commands themselves: `weft COMMAND --help` says the same.\n"
    parts = re.split(r"(^```.*?^```$)", text.replace("# weft\n", said, 1), flags=re.M | re.S)
    parts[::2] = [_OPTIONAL.sub(r"\\[\1\\]", part) for part in parts[::2]]  # [HOST] is no link
    return "".join(parts)


def python() -> str:
    return "# Python\n\nMade from the docstrings.\n\n" + "".join(f"::: {module}\n\n" for module in MODULES)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
