"""The one table of a study."""

from __future__ import annotations

from weft.study.grid import read
from weft.study.table import rows_of, to_csv
from weft.study.worker import Outcome
from weft.version import __version__


def columns_and_rows(grid: list[str], *runs: list[dict]):
    return rows_of(read(["x"], grid), {place: Outcome(rows=rows) for place, rows in enumerate(runs)})


def test_options_come_first_then_results_then_how_it_ended():
    columns, rows = columns_and_rows(["size=64K"], [{"time.mean": 1.5, "digest": "1e5"}])
    assert columns == ["size", "time.mean", "digest", "status", "error", "weft", "command"]
    assert to_csv(columns, rows).decode().splitlines()[1] == f"64K,1.5,1e5,ok,,{__version__},x --size=64K"


def test_each_row_of_a_run_is_a_row():
    _, rows = columns_and_rows(["k=1,2"], [{"n": 1}, {"n": 2}], [{"n": 3}])
    assert [(row["k"], row["n"]) for row in rows] == [(1, 1), (1, 2), (2, 3)]


def test_a_run_without_rows_has_one_and_columns_are_of_all_runs():
    columns, rows = columns_and_rows(["k=1..3"], [{"n": 1}], [], [{"m": 2}])
    assert columns[:3] == ["k", "n", "m"]
    assert [(row["k"], row.get("n"), row.get("m")) for row in rows] == [(1, 1, None), (2, None, None), (3, None, 2)]


def test_a_result_with_the_name_of_an_option_is_kept_if_it_differs():
    columns, rows = columns_and_rows(["seed=1", "size=1K"], [{"seed": 1, "size": 1024, "status": "up"}])
    assert columns == ["seed", "size", "result.size", "result.status", "status", "error", "weft", "command"]
    assert (rows[0]["size"], rows[0]["result.size"], rows[0]["result.status"], rows[0]["status"]) == (
        "1K",
        1024,
        "up",
        "ok",
    )


def test_how_long_weft_took_is_not_in_it():
    columns, _ = columns_and_rows(["k=1"], [{"wall_s": 0.1, "a.wall_s": 0.1, "packet_hops_per_s": 9.0, "step_s": 1.0}])
    assert columns[:2] == ["k", "step_s"]
    assert "wall_s" not in "".join(columns)
