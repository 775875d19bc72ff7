"""Standard input and output of the commands, also if the reader of their output has ended."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.warm import WARM

from weft.cli import app
from weft.cli.output import _show, table

PRINTS = [("links",), ("links", "--json"), ("topologies",), ("show", "star:hosts=4")]


def weft(*arguments: str, **how) -> subprocess.CompletedProcess[str]:
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    return subprocess.run((os.environ[WARM], *arguments), text=True, check=False, **how)


@pytest.mark.parametrize("arguments", [*PRINTS, ("--help",)])
def test_a_full_standard_output_is_one_line_and_a_status(arguments):
    with open("/dev/full", "w") as full:
        done = weft(*arguments, stdout=full)
    assert done.returncode == 1
    assert done.stderr == "weft: cannot write standard output: No space left on device\n"


@pytest.mark.parametrize("arguments", PRINTS)
def test_a_reader_that_has_seen_enough_is_no_error(arguments):
    reads, writes = os.pipe()
    os.close(reads)
    done = weft(*arguments, stdout=writes)
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_standard_output_is_no_traceback():
    words = (sys.executable, "-m", "weft", "links")
    done = subprocess.run(("sh", "-c", '"$@" >&-', "sh", *words), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_errors_of_the_system_are_never_without_words(monkeypatch, capsys):
    import weft.cli

    for error in (TimeoutError(), OSError(), ConnectionResetError()):

        def raises(arguments: list[str], error: OSError = error, **options: bool) -> None:
            raise error

        monkeypatch.setattr(weft.cli, "app", raises)
        with pytest.raises(SystemExit) as end:
            weft.cli.main()
        assert end.value.code == 1
        assert type(error).__name__ in capsys.readouterr().err


def test_a_fabric_goes_from_command_to_command():
    result = weft("export", "fat-tree:hosts=12,radix=8", "-o", "-", "-f", "ibnetdiscover")
    assert (result.returncode, result.stderr) == (0, "")
    for name in ("-", "/dev/stdin"):
        output = weft("show", name, "--json", input=result.stdout)
        assert '"servers": 12' in output.stdout, output.stderr


def test_a_picture_goes_to_standard_output():
    for name in ("-", "/dev/stdout"):
        done = weft("draw", "star:hosts=4", "-o", name)
        assert done.stdout.startswith("<?xml")
        assert done.stdout.rstrip().endswith("</svg>")


def test_a_stream_needs_its_format_said():
    done = weft("export", "star:hosts=4", "-o", "-")
    assert done.returncode == 2
    assert "-f lab | ibnetdiscover" in done.stderr


def test_an_option_is_not_taken_for_a_file():
    for words, message in (
        (("show", "--jsn"), "there is no option --jsn"),
        (("export", "star:hosts=4", "-o", "--json"), "-o needs a value before --json"),
    ):
        done = weft(*words)
        assert done.returncode == 2
        assert message in done.stderr


WORDS = st.text("abcdefgh-/", min_size=1, max_size=24)
CELLS = st.one_of(st.none(), st.integers(0, 10**12), st.lists(WORDS, max_size=4).map(" ".join))


@given(st.integers(1, 12).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=6)))
def test_a_table_is_not_broken_inside_a_word_nor_wider_than_the_screen(rows):
    screen = Console(width=80, file=io.StringIO())
    screen.print(table("a title", [f"head{'er' * i} of {i}" for i in range(len(rows[0]))], rows, "a note"))
    lines = screen.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    output = Counter(word for line in lines for word in line.split())
    messages = Counter(word for row in rows for cell in row if cell is not None for word in _show(cell).split())
    assert messages <= output


def test_columns_that_do_not_fit_stand_below_each_other_with_the_first_again():
    screen = Console(width=30, file=io.StringIO())
    screen.print(table("", ("fabric", "adapters/server", "published"), [("ndr", "8 × ConnectX-7", "5 runs")]))
    assert [line.split() for line in screen.file.getvalue().splitlines() if "─" not in line and line.strip()] == [
        ["fabric", "adapters/server"],
        ["ndr", "8", "×", "ConnectX-7"],
        ["fabric", "published"],
        ["ndr", "5", "runs"],
    ]


def test_the_usage_of_a_topology_can_be_broken_between_its_parameters(capsys):
    app(["topologies", "fat-tree"])
    words = capsys.readouterr().out.replace("─", " ").split()
    assert max(map(len, words)) < 30
