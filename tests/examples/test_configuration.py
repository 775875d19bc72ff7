"""Scripts and configuration in README and docs are what their readers take: shells, weft's own command line and files.

Neutron, Slurm and Prometheus get theirs in tests/interop: `PEERS` says where. `text` is a drawing or a session with a
person in it; `console` and `python` blocks are run by test_documents.py.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from cyclopts import CycloptsError
from tests.documents import ROOT, Block, all_blocks

from weft.cli import app
from weft.errors import ConfigError
from weft.serve.ufm.partitions import read_p_key
from weft.sm.pkey.partitions_conf import parse_partitions
from weft.tenants.intent import parse_intent

# Whose file a block is, by its first line: the test that gives it to that program.
PEERS = {
    "# /etc/neutron/plugins/ml2/ml2_conf.ini": "tests/interop/test_neutron.py",
    "# slurm.conf": "tests/interop/test_slurm_jobs.py",
    "scrape_configs:": "tests/interop/test_prometheus.py",
}
_SEPARATORS = re.compile(r"[;&|()<>]+|:")
_INSTRUCTIONS = {"FROM", "RUN", "USER", "COPY", "ENV", "WORKDIR", "ENTRYPOINT", "CMD", "EXPOSE", "ARG"}


def commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a shell script."""
    words = shlex.shlex(script.replace("\\\n", " ").replace("\n", " ;\n"), posix=True, punctuation_chars=True)
    words.whitespace_split, words.commenters = True, "#"
    command: list[str] = []
    for word in words:
        if _SEPARATORS.fullmatch(word):
            yield command
            command = []
        else:
            command.append(word)
    yield command


def check_shell(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for command in commands(script):
        names = [word.rpartition("/")[2] for word in command]
        if "weft" in names:
            app.parse_args(command[names.index("weft") + 1 :], exit_on_error=False, print_error=False)
        elif command[:1] == ["make"]:
            assert re.search(rf"^{command[1]}:", (ROOT / "Makefile").read_text(), re.M), command
        elif command[:1] == ["python"] and command[1].startswith("benchmarks/"):
            assert (ROOT / command[1]).is_file(), command


def check_toml(text: str) -> None:
    parse_intent(tomllib.loads(text))


def check_partitions_conf(text: str) -> None:
    assert parse_partitions(text).notes == ()


def check_yaml(text: str) -> None:
    """Check that Kubernetes objects have a kind and a name; check embedded programs and CNI configurations too."""
    for document in yaml.safe_load_all(text):
        assert isinstance(document, dict)
        if "scrape_configs" in document:
            check_peer(text)
        if "kind" in document:
            assert document["apiVersion"]
            assert document["metadata"]["name"]
        for script in _values(document, "args"):
            check_shell("\n".join(script))
        for config in _values(document, "config"):
            if isinstance(config, str):
                read_p_key(json.loads(config)["pkey"])


def _values(inside: Any, name: str) -> Iterator[Any]:
    if isinstance(inside, dict):
        if name in inside:
            yield inside[name]
        inside = list(inside.values())
    if isinstance(inside, list):
        for item in inside:
            yield from _values(item, name)


def check_python(text: str) -> None:
    compile(text, "block", "exec")


def check_dockerfile(text: str) -> None:
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    assert lines[0].startswith("FROM ")
    for line in lines:
        instruction, _, rest = line.partition(" ")
        assert instruction in _INSTRUCTIONS, line
        if instruction == "RUN":
            check_shell(rest)


def check_peer(text: str) -> None:
    """Check that for a file of another program there is a test in which that program reads it."""
    assert (ROOT / PEERS[text.partition("\n")[0]]).is_file()


CHECKS: dict[str, Callable[[str], None]] = {
    "conf": check_partitions_conf,
    "dockerfile": check_dockerfile,
    "ini": check_peer,
    "py": check_python,
    "sh": check_shell,
    "toml": check_toml,
    "yaml": check_yaml,
}


@pytest.mark.parametrize("block", all_blocks(*CHECKS), ids=str)
def test_a_block_is_what_its_reader_takes(block: Block) -> None:
    CHECKS[block.language](block.text)


def test_every_block_has_a_language_that_a_test_knows():
    recorded = {*CHECKS, "console", "python", "text"}
    assert [str(block) for block in all_blocks() if block.language not in recorded] == []


@pytest.mark.parametrize(
    ("language", "text", "error"),
    [
        ("sh", "weft sim --nosuch star:4", CycloptsError),
        ("sh", "echo one && /opt/weft/bin/weft nosuch", CycloptsError),
        ("sh", "if true; then", AssertionError),
        ("sh", "make nosuch", AssertionError),
        ("ini", "# /etc/some.conf\n[a]\n", KeyError),
        ("yaml", "kind: Secret\napiVersion: v1\n", KeyError),
        ("yaml", "kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {args: ['weft nosuch']}\n", CycloptsError),
        ("toml", "[tenant.acme]\nhosts = 7\n", ConfigError),
        ("conf", "red=0x0001, nosuchflag: ALL;\n", AssertionError),
        ("py", "def (", SyntaxError),
        ("dockerfile", "FROM weft\nINSTALL gcc\n", AssertionError),
    ],
)
def test_a_wrong_block_is_noticed(language, text, error):
    with pytest.raises(error):
        CHECKS[language](text)
