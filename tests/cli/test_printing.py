"""Tables, JSON and CSV of the commands, in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.cli import output
from weft.cli.arguments import TABLES, Form
from weft.errors import ConfigError

JSON, CSV = Form(json=True), Form(csv=True)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, ""),
        ("a", "a"),
        (0, "0"),
        (12345, "12,345"),
        (0.123456, "0.1235"),
        (-999.94, "-999.9"),
        (1000.0, "1,000"),
        (-12345.6, "-12,346"),
    ],
)
def test_numbers_have_four_digits_and_from_a_thousand_on_none_behind_the_point(cell, text):
    assert output._show(cell) == text


def test_columns_are_one_part_if_their_longest_words_just_fit():
    assert output._parts([5, 5, 5], [9, 9, 9], width=23) == [[0, 1, 2]]  # three between columns, one at each end
    assert output._parts([5, 5, 5], [9, 9, 9], width=22) == [[0, 1], [0, 2]]


def test_a_part_has_as_many_unwrapped_columns_as_fit_and_at_least_two():
    assert output._parts([9] * 4, [9] * 4, width=35) == [[0, 1, 2], [0, 3]]
    assert output._parts([9] * 4, [9] * 4, width=34) == [[0, 1], [0, 2], [0, 3]]
    assert output._parts([9, 30], [9, 30], width=20) == [[0, 1]]


def test_the_widest_columns_shrink_first_and_none_below_its_longest_word():
    assert output._widths([0, 1], [3, 3], [10, 6], width=21) == {0: 10, 1: 6}
    assert output._widths([0, 1], [3, 3], [10, 6], width=17) == {0: 6, 1: 6}
    assert output._widths([0, 2], [4, 0, 2], [10, 0, 6], width=5) == {0: 4, 2: 2}


def test_json_has_all_facts_and_csv_the_rows_of_the_named_lists(capsys):
    facts = {"total": 3, "links": [{"a": 1, "b": {"c": 2, "d": [1, 2]}, "e": [{"f": 1}]}, {"g": None}]}
    output.print_data(JSON, facts)
    assert json.loads(capsys.readouterr().out) == facts
    output.print_data(CSV, facts, "links")
    assert capsys.readouterr().out == "a,b.c,b.d,g\n1,2,1; 2,\n,,,\n"
    output.print_data(CSV, {"x": [{"a": 1}], "y": [{"b": 2}]}, "x", "y")
    assert capsys.readouterr().out == "table,a,b\nx,1,\ny,,2\n"
    output.print_data(CSV, {"a": 1})
    output.print_data(CSV, [{"n": 1, "rows": [{"m": 2}, {"m": 3}]}], "rows")
    assert capsys.readouterr().out == "a\n1\nn,rows.m\n1,2\n1,3\n"


def test_rows_are_collected_instead_of_printed_whatever_the_form(capsys):
    with output.collect_rows() as rows:
        for form in (JSON, CSV):
            output.print_data(form, {"path": Path("x"), "n": 1})
    assert rows == [{"path": "x", "n": 1}] * 2
    assert capsys.readouterr().out == ""
    output.print_data(CSV, {"n": 1})
    assert capsys.readouterr().out == "n\n1\n"


def test_json_and_csv_exclude_each_other_and_explain():
    assert [form.is_data for form in (TABLES, JSON, CSV)] == [False, True, True]
    with pytest.raises(ConfigError, match="use --json or --csv, not both"):
        Form(json=True, csv=True)
    for form in (JSON, CSV):
        output.check_explain(False, form)
        with pytest.raises(ConfigError, match="--explain changes nothing here"):
            output.check_explain(True, form)
    output.check_explain(True, TABLES)


def test_written_files_are_named_but_not_standard_output(capsys, tmp_path):
    output.report_written(None, tmp_path / "a", Path("-"), prefix="picture ")
    assert capsys.readouterr().out == f"picture {tmp_path / 'a'}: written\n"


def test_progress_is_printed_in_lines_for_programs_and_not_at_all_otherwise(monkeypatch, capsys):
    for setting, lines in (("lines", "runs\n2 of 3\n"), ("", "")):
        monkeypatch.setenv("WEFT_PROGRESS", setting)
        with output.progress_bar("runs") as change:
            change(completed=1)
            change(description="2 of 3")
            change(description="2 of 3", completed=2)
        assert capsys.readouterr().err == lines


@pytest.mark.parametrize(("columns", "width", "wraps"), [("", 160, False), ("70", 70, True), ("many", 160, False)])
def test_a_pipe_is_as_wide_as_columns_says_or_160_letters(monkeypatch, columns, width, wraps):
    monkeypatch.setenv("COLUMNS", columns)
    screen = output.console()
    assert (screen.width, not screen.soft_wrap) == (width, wraps)
