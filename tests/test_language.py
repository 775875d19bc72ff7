"""Hold the language of the sources: docstring starts, vague names and odd wording, each below 2 % in a package."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.language import MOST, measure

import weft

SOURCE = Path(weft.__file__).parent
PACKAGES = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_written_in_plain_english(package: str) -> None:
    findings = measure(iter(sorted((SOURCE / package).rglob("*.py"))))
    for kind, found in findings.items():
        assert found.share <= MOST, f"{kind}: {found.share:.1%} of {package}\n" + "\n".join(found.problems[:20])


def test_modules_outside_of_packages_are_written_in_plain_english() -> None:
    findings = measure(iter(sorted(SOURCE.glob("*.py"))))
    assert {kind: found.problems for kind, found in findings.items() if found.share > MOST} == {}


def test_a_docstring_in_other_words_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "riddle.py"
    path.write_text('def told(one):\n    """What nobody has asked for."""\n    return one\n', encoding="utf-8")
    findings = measure(iter([path]))
    assert [len(found.problems) for found in findings.values()] == [1, 2, 1]
