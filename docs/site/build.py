"""Build the documentation site: the pages of docs/, and those that are made from weft itself.

python docs/site/build.py out/site          into out/site/html
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from inspect import getdoc
from pathlib import Path

import weft
from weft.cli import COMMANDS, app, use_whole_docstring

ROOT = Path(__file__).parents[2]
# Packages without a page: `weft` itself has one for its functions, and no program imports the command line.
_WITHOUT_PAGE = ("api", "cli")
_OUTSIDE = re.compile(r"\[([^]]+)\]\((?:\.\./)+([A-Z]+\.md|(?:src|tests|examples)/[\w./-]+)\)")

_SECTIONS = "Parameters\n    "  # of the docstrings of functions for users
_IMPORTS = re.compile(r"^from (weft\.[\w.]+) import ", re.M)
_EXPORTS = re.compile(r"^__all__ = |import \*|\b(\w+) as \1\b", re.M)
_OPTIONAL = re.compile(r"\[([^]`]+)\](?!\()")


def main(folder: Path) -> int:
    pages = folder / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("site"))
    for page in pages.rglob("*.md"):  # what lies outside of docs/ is named, not linked: the site stands alone
        page.write_text(_OUTSIDE.sub(_name, page.read_text(encoding="utf-8")), encoding="utf-8")
    (pages / "reference").mkdir()
    (pages / "reference" / "commands.md").write_text(commands(), encoding="utf-8")
    (pages / "reference" / "python.md").write_text(functions(), encoding="utf-8")
    for module in public_modules("weft.api"):
        copy_source(module, folder / "src")
    for package in packages():
        (pages / "reference" / f"{package}.md").write_text(describe(package), encoding="utf-8")
        for module in public_modules(package):
            copy_source(module, folder / "src")
    settings = (ROOT / "docs/site/zensical.toml").read_text(encoding="utf-8")
    (folder / "zensical.toml").write_text(
        settings.replace("weft VERSION", f"weft {weft.__version__}"), encoding="utf-8"
    )
    return subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder, check=False).returncode


def _name(link: re.Match[str]) -> str:
    """Return the text of a link and the path to which it led, once if they are the same."""
    text, path = link.groups()
    return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"


def copy_source(module: str, target: Path) -> None:
    """Copy a module with its packages and the modules whose names it exports: all of weft would take longer to read."""
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        file = source_file(".".join(parts[:depth])).relative_to(ROOT / "src")
        if (target / file).exists():
            continue
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "src" / file, target / file)
        text = (target / file).read_text(encoding="utf-8")
        for other in _IMPORTS.findall(text) if _EXPORTS.search(text) else []:
            copy_source(other, target)


def commands() -> str:
    for name in COMMANDS:
        use_whole_docstring(name)
    text: str = app.generate_docs(heading_level=1)
    said = "# Commands\n\nMade from the commands themselves: `weft COMMAND --help` says the same.\n"
    parts = re.split(r"(^```.*?^```$)", text.replace("# weft\n", said, 1), flags=re.M | re.S)
    parts[::2] = [_OPTIONAL.sub(r"\\[\1\\]", part) for part in parts[::2]]  # [HOST] is no link
    return "".join(parts)


def packages() -> list[str]:
    """Return the packages with public names, each of which has a page."""
    names = sorted(path.parent.name for path in (ROOT / "src/weft").glob("*/__init__.py"))
    return [f"weft.{name}" for name in names if name not in _WITHOUT_PAGE and public_names(f"weft.{name}")]


def public_names(package: str) -> list[str]:
    names: list[str] = importlib.import_module(package).__all__
    return names


def source_file(module: str) -> Path:
    place = ROOT / "src" / Path(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def public_modules(package: str) -> list[str]:
    """Return a package and its public modules, with those of public packages in it."""
    modules = [package]
    for name in (f"{package}.{name}" for name in public_names(package)):
        if source_file(name).is_file():
            modules += public_modules(name) if source_file(name).name == "__init__.py" else [name]
    return modules


def describe(package: str) -> str:
    """Return the page of a package: its docstring and own names, then its public modules."""
    parts = [f"# {package}\n\n"]
    for module in public_modules(package):
        file = source_file(module)
        options = ["docstring_style: numpy"] if _SECTIONS in file.read_text(encoding="utf-8") else []
        if file.name == "__init__.py":
            own = [name for name in public_names(module) if not source_file(f"{module}.{name}").is_file()]
            options.append(f"members: {own}" if own else "members: false")
        parts.append(reference(module, *options))
    return "".join(parts)


def functions() -> str:
    """Return the page of the functions of `weft`, with a list of the pages of packages."""
    summary = {package: (getdoc(importlib.import_module(package)) or "").splitlines()[0] for package in packages()}
    lines = [f"- [{package}]({package}.md): {line}" for package, line in summary.items()]
    heads = ("docstring_style: numpy", "show_root_full_path: false")
    homes = {name: getattr(weft, name).__module__ for name in weft.__all__ if name != "Fabric"}
    return (
        "# Python\n\nThe functions of `import weft`, with examples that the tests run; [Python](../python.md) is the "
        "tutorial. `weft.Fabric` is described in [weft.fabric](weft.fabric.md); [other packages](#packages) are listed "
        "below.\n\n"
        + "".join(reference(f"{home}.{name}", *heads) for name, home in homes.items())
        + "## Packages\n\n"
        + "\n".join(lines)
        + "\n"
    )


def reference(name: str, *options: str) -> str:
    """Return the directive of mkdocstrings for a name."""
    lines = [f"::: {name}", *(["    options:"] if options else []), *(f"      {option}" for option in options)]
    return "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
