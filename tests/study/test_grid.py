"""The runs of a study, from its command line or file."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.study.grid import read


def lines(*words: str, grid: list[str]) -> list[str]:
    return [" ".join(run.words) for run in read(words, grid).runs()]


def test_every_value_is_run_with_every_other_and_the_last_list_changes_fastest():
    assert lines("sim", "star:hosts=4", grid=["size=64K,1M", "seed=1..3"]) == [
        f"sim star:hosts=4 --size={size} --seed={seed}" for size in ("64K", "1M") for seed in (1, 2, 3)
    ]


def test_a_value_goes_where_its_name_stands_in_braces():
    assert lines("sim", "star:hosts={n},speed={speed}", grid=["n=4,8", "speed=NDR"]) == [
        "sim star:hosts=4,speed=NDR",
        "sim star:hosts=8,speed=NDR",
    ]


def test_names_in_one_list_change_together():
    assert lines("train", grid=["tp,pp=8,1;4,2", "b=1M"]) == ["train --tp=8 --pp=1 -b 1M", "train --tp=4 --pp=2 -b 1M"]


def test_values_that_have_commas_stand_between_semicolons():
    assert lines("show", "{spec}", grid=["spec=star:hosts=4,speed=NDR;torus:4x4"]) == [
        "show star:hosts=4,speed=NDR",
        "show torus:4x4",
    ]
    assert lines("compare", grid=["fabrics=ndr,hdr;"]) == ["compare --fabrics=ndr,hdr"]


def test_true_and_false_are_a_flag_and_its_opposite():
    assert lines("nccl", grid=["gpudirect=true,false"]) == ["nccl --gpudirect", "nccl --no-gpudirect"]


def test_a_number_is_one_only_if_it_is_written_as_one():
    """Otherwise the command would get another text than typed."""
    (run,) = read(["x"], ["a=7", "b=0.5", "c=1e3", "d=007", "e=nan", "f=inf"]).runs()
    assert run.values == {"a": 7, "b": 0.5, "c": "1e3", "d": "007", "e": "nan", "f": "inf"}
    assert run.words == ("x", "-a", "7", "-b", "0.5", "-c", "1e3", "-d", "007", "-e", "nan", "-f", "inf")


TOML = """
run = "sim 'star:hosts={hosts}' --engine flow"
[grid]
hosts = [4, 8]
seed = "1..2"
"size,load" = [["64K", 0.5], ["1M", 0.25]]
routed = [true]
"""
JSON = """{"run": "sim star:hosts={hosts} --engine flow", "grid": {"hosts": [4, 8], "seed": "1..2",
"size,load": [["64K", 0.5], ["1M", 0.25]], "routed": [true]}}"""


@pytest.mark.parametrize(("name", "text"), [("s.toml", TOML), ("s.json", JSON)])
def test_a_file_says_the_same_and_the_command_line_adds_to_it(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    study = read([str(tmp_path / name), "--routing-engine", "auto"], ["seed=7"])
    assert [" ".join(run.words) for run in study.runs()] == [
        f"sim star:hosts={hosts} --engine flow --routing-engine auto --seed=7 --size={size} --load={load} --routed"
        for hosts in (4, 8)
        for size, load in (("64K", 0.5), ("1M", 0.25))
    ]


def test_a_study_has_up_to_a_million_runs_and_a_range_at_least_one_value():
    assert len(read(["x"], ["a=1..1000", "b=1..1000"])) == 1_000_000
    assert [(run.place, run.values["a"]) for run in read(["x"], ["a=-3..-3,0..1"]).runs()] == [(0, -3), (1, 0), (2, 1)]


def test_a_study_is_described_by_its_command_line_and_its_lists():
    study = read(["sim", "a b"], ["seed=1,2", "tp,pp=8,1;4,2"])
    assert study.describe() == {"run": "sim 'a b'", "grid": {"seed": [1, 2], "tp,pp": [[8, 1], [4, 2]]}}


def test_twenty_texts_of_many_are_samples():
    values = ",".join(f"v{i}" for i in range(30))
    assert [run.values["a"] for run in read(["x"], [f"a={values}"]).samples()] == [f"v{i}" for i in range(20)]
    flags = [run.words[1] for run in read(["x"], ["no=true,false"]).samples()]
    assert flags == ["--no", "--no-no"]


def test_samples_have_every_text_and_the_ends_of_numbers():
    """Checking a run takes as long as a short run, so not all are checked."""
    samples = [run.values for run in read(["x"], ["seed=1..5000,-3", "size=64K,1M,8", "tp,pp=8,1;4,2"]).samples()]
    assert {sample["seed"] for sample in samples} == {1, -3, 5000}
    assert {sample["size"] for sample in samples} == {"64K", "1M", 8}
    assert {(sample["tp"], sample["pp"]) for sample in samples} == {(8, 1), (4, 2)}
    assert len(samples) == 6


@pytest.mark.parametrize(
    ("words", "grid", "said"),
    [
        ([], ["a=1"], "a study runs a command"),
        (["x"], [], "needs lists of values"),
        (["x"], ["size"], "--grid size has no values"),
        (["x"], ["size="], "size= has an empty value"),
        (["x"], ["size=1,,2"], "an empty value"),
        (["x"], ["a=1,2,1"], "a has 1 twice"),
        (["x"], ["a=1", "a=2"], "--grid a is given twice"),
        (["x"], ["a=1", "a,b=1,2"], "a is in two lists"),
        (["x"], ["a,b=1,2;3"], "a,b needs 2 values each time, not 3"),
        (["x"], ["a=9..1"], "a=9..1 must increase"),
        (["x"], ["a=1..99999999999"], "must increase, by less than 1,000,000"),
        (["x"], ["a=1..1000001"], "must increase, by less than 1,000,000"),
        (["x"], ["a=1..1000", "b=1..1001"], "1,001,000 runs are more than 1,000,000"),
        (["x"], ["a=1..5000", "b=1..5000"], "25,000,000 runs are more than 1,000,000"),
        (["x"], [f"a={'9' * 500}", f"b={'9' * 500}..{'9' * 500}", "c=2..1"], "c=2..1 must increase"),
        (["x"], ["a b=1"], "'a b' is not a flag"),
        (["x{hsts}"], ["hosts=1"], "there is no list of values for '{hsts}'; did you mean hosts?"),
        (["no.toml"], [], "cannot read no.toml"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_by_name(words, grid, said):
    with pytest.raises(ConfigError) as refused:
        read(words, grid)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run = ", "expected TOML"),
        ("[grid]\na = [1]", "expected run ="),
        ("run = 3", "expected run ="),
        ('run = "x \'y"', "closed quotes"),
        ('run = "x"\ngrid = 3', "a list of values for each name"),
        ('run = "x"\ngird = 3', "did you mean grid?"),
        ('run = "x"\n[grid]\na = []', "a has no values"),
        ('run = "x"\n[grid]\na = [{b = 1}]', "a value must be a text, a number, true or false"),
    ],
)
def test_a_file_that_is_no_study_is_refused(text, said, tmp_path):
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        read([str(tmp_path / "s.toml")], [])
    assert said in str(refused.value)
