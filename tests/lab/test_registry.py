"""Names of labs, and the selection of a command's lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.errors import ConfigError, UnknownName
from weft.lab import registry
from weft.lab.registry import Entry


@pytest.mark.parametrize(
    ("running", "name", "found"), [(["a"], "", "a"), (["a"], "a", "a"), (["a", "b"], "b", "b"), (["a", "b"], "a", "a")]
)
def test_a_lab_is_found_by_its_name_or_as_the_only_one(monkeypatch, running, name, found):
    monkeypatch.setattr(registry, "running", lambda: [Entry(item, Path()) for item in running])
    assert registry.find(name).name == found


@pytest.mark.parametrize(
    ("running", "name", "error", "text"),
    [
        ([], "", ConfigError, "no lab runs"),
        (["a", "b"], "", ConfigError, "2 labs run, a, b: say which with --lab NAME"),
        (["a", "b"], "c", UnknownName, "running lab"),
        ([], "c", UnknownName, "running lab"),
    ],
)
def test_a_lab_that_is_not_the_only_one_or_does_not_run_is_an_error(monkeypatch, running, name, error, text):
    monkeypatch.setattr(registry, "running", lambda: [Entry(item, Path()) for item in running])
    with pytest.raises(error, match=text):
        registry.find(name)


@pytest.mark.parametrize(
    ("name", "is_valid"), [("a" * 32, True), ("a" * 33, False), ("lab-2.x_y", True), ("a/b", False)]
)
def test_a_name_has_up_to_32_letters_and_digits(name, is_valid):
    if is_valid:
        assert registry.entry(name).name == name
    else:
        with pytest.raises(ConfigError, match="cannot be named"):
            registry.entry(name)
