from __future__ import annotations

import re

import pytest

from weft import errors
from weft.errors import FileError, UnknownName, WeftError, find_named


def test_the_tree_in_the_docstring_is_the_tree_of_classes():
    drawn = re.findall(r"^    ([│├└─ ]*)(\w+)", errors.__doc__ or "", re.M)
    path: list[str] = []
    for indent, name in drawn:
        path = [*path[: len(indent) // 4], name]
        parent = getattr(errors, path[-2]) if len(path) > 1 else Exception
        assert getattr(errors, name).__base__ is parent
    assert {name for _, name in drawn} == {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, WeftError)
    }


def test_an_unknown_name_suggests_near_ones():
    assert "did you mean leaf1 or leaf10?" in str(UnknownName("node", "laef1", ["leaf1", "leaf10", "spine1"]))


def test_an_unknown_name_lists_all_when_they_are_few():
    assert "there are aa, bb, cc, dd" in str(UnknownName("server", "zzz", ["aa", "bb", "cc", "dd"]))


def test_a_name_is_found_in_any_case_and_as_it_is_written_first():
    recorded = {"NDR": 1, "ndr": 2, "Edr": 3}
    assert [find_named("speed", name, recorded) for name in ("NDR", "ndr", "eDR")] == [1, 2, 3]
    with pytest.raises(UnknownName, match=r"there is no speed 'XDR'; did you mean NDR"):
        find_named("speed", "XDR", recorded)


def test_a_file_error_has_the_place_the_wrong_text_and_the_expected_text():
    error = FileError("net.txt", 7, "Swich 8", "Switch, Ca or a port line")
    assert str(error) == "net.txt:7: 'Swich 8' is not valid; expected Switch, Ca or a port line"


def test_a_long_line_is_cut_in_the_message():
    assert len(str(FileError("f", 1, "x" * 10_000, "less"))) < 150
