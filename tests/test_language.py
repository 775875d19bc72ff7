"""Hold the language of sources, tests and benchmarks: docstring starts, vague names, odd wording, each below 2 %."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.language import MOST, measure

import weft

ROOT = Path(__file__).parents[1]
SOURCE = Path(weft.__file__).parent
PACKAGES = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_written_in_plain_english(package: str) -> None:
    findings = measure(iter(sorted((SOURCE / package).rglob("*.py"))))
    for kind, result in findings.items():
        assert result.share <= MOST, f"{kind}: {result.share:.1%} of {package}\n" + "\n".join(result.problems[:20])


def test_modules_outside_of_packages_are_written_in_plain_english() -> None:
    findings = measure(iter(sorted(SOURCE.glob("*.py"))))
    assert {kind: result.problems for kind, result in findings.items() if result.share > MOST} == {}


@pytest.mark.parametrize("folder", ["tests", "benchmarks"])
def test_tests_and_benchmarks_are_written_in_plain_english(folder: str) -> None:
    findings = measure(iter(sorted((ROOT / folder).rglob("*.py"))))
    for kind, result in findings.items():
        assert result.share <= MOST, f"{kind}: {result.share:.1%} of {folder}\n" + "\n".join(result.problems[:40])


def test_names_of_tests_start_with_a_subject() -> None:
    """A claim has a subject: `test_late_mad_is_dropped`, not `test_what_comes_late_is_dropped`."""
    tests = sorted(Path(__file__).parent.rglob("test_*.py"))
    names = [name for path in tests for name in re.findall(r"^ *def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)]
    vague = [name for name in names if re.match(r"test_(what|who|whose|nobody|somebody)", name)]
    assert len(names) > 1000
    assert vague == []


def test_a_docstring_in_other_words_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "riddle.py"
    path.write_text('def told(one):\n    """What nobody has asked for."""\n    return one\n', encoding="utf-8")
    findings = measure(iter([path]))
    assert [len(finding.problems) for finding in findings.values()] == [1, 2, 1]


@pytest.mark.parametrize(("line", "count"), [("def test_it():", 0), ("def it():", 1), ("@fixture\ndef it():", 0)])
def test_docstrings_of_tests_and_fixtures_need_no_verb(tmp_path: Path, line: str, count: int) -> None:
    path = tmp_path / "helper.py"
    path.write_text(f'{line}\n    """The fabric is routed."""\n', encoding="utf-8")
    assert len(measure(iter([path]))["docstring starts"].problems) == count
