"""The documentation site builds without a warning: every page is reached, every link leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest

import weft
import weft.routing
from weft.cli import COMMANDS

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, DOCS / "site/build.py", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def test_every_page_is_in_the_navigation(monkeypatch):
    config = tomllib.loads((DOCS / "site/zensical.toml").read_text(encoding="utf-8"))
    in_navigation = set(re.findall(r"[\w/.-]+\.md", str(config["project"]["nav"])))
    written = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    monkeypatch.syspath_prepend(DOCS / "site")
    import build

    result = {"commands", "python", *build.packages()}
    assert in_navigation == written | {f"reference/{name}.md" for name in result}


def test_every_command_and_every_way_in_is_described(site):
    commands = (site / "reference/commands.html").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f'id="weft-{name}"' in commands


def test_every_function_of_weft_is_described_with_its_parameters(site):
    text = (site / "reference/python.html").read_text(encoding="utf-8")
    for name in set(weft.__all__) - {"Fabric"}:
        assert f'id="{getattr(weft, name).__module__}.{name}"' in text
    assert re.search(r"duration_us.*?how long messages start", text, re.S)
    assert "Parameters\n---" not in text


def test_the_page_of_a_package_has_every_public_module_and_its_functions(site):
    text = (site / "reference/weft.routing.html").read_text(encoding="utf-8")
    for name in (*weft.routing.__all__, "route.route", "route.Routing", "check.TableCheck", "engine.Options"):
        assert f'id="weft.routing.{name}"' in text


def test_pictures_are_those_that_the_commands_before_them_write():
    text = (DOCS / "pictures.md").read_text(encoding="utf-8")
    pairs = re.findall(r"```console\n\$ weft .*?(?:-o|--picture\S*) (\S+)\n.*?```\n\n!\[[^]]+\]\(([^)]+)\)", text, re.S)
    assert len(pairs) == text.count("```console")
    for written, shown in pairs:
        assert Path(shown).name == written
        assert (DOCS / shown).is_file()


def test_each_page_has_the_version(site):
    for page in ("index.html", "tutorials/operator.html", "reference/python.html"):
        assert f"weft {weft.__version__}" in (site / page).read_text(encoding="utf-8")


def test_the_search_index_has_pages_commands_and_functions(site):
    (index,) = site.rglob("search*.json")
    text = index.read_text(encoding="utf-8")
    for words in ("Pictures, one command each", "weft maintain", "weft.api.predictions.time", "How far to trust it"):
        assert words in text


def test_the_site_fetches_nothing(site):
    for page in site.rglob("*.html"):
        assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="https?:', page.read_text(encoding="utf-8")), page


def test_every_link_of_the_site_leads_to_a_file(site):
    dead = [
        f"{page.relative_to(site)}: {link}"
        for page in site.rglob("*.html")
        for link in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text(encoding="utf-8"))
        if not re.match(r"\w+:", link) and page.name != "404.html" and not (page.parent / unquote(link)).exists()
    ]
    assert dead == []


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/glossary.md"])
def test_links_for_newcomers_exist(name):
    """Folders and files of the source, from its root or from the source folder."""
    root = DOCS.parent
    named = re.findall(r"`([\w*/]+/[\w*]*(?:\.\w+)?|\w+\.py)`", (root / name).read_text(encoding="utf-8"))
    assert len(named) > 20
    missing = [
        path for path in named if not any(set(base.glob(path.rstrip("/"))) for base in (root, root / "src/weft"))
    ]
    assert missing == []


def test_no_text_installs_the_other_project_named_weft():
    """The name `weft` on the package index belongs to another project; ours is `weft-fabric`."""
    root = DOCS.parent
    files = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    wrong = []
    for name in filter(None, files.split("\0")):
        if Path(name).suffix in (".md", ".py", ".toml", ".sh", ".yml", "") and name != "tests/test_site.py":
            text = (root / name).read_text(encoding="utf-8", errors="replace")
            wrong += [
                f"{name}: {words}" for words in re.findall(r"pip install(?:\s+-\S+)*\s+['\"]?weft(?![\w-]).*", text)
            ]
    assert wrong == []
