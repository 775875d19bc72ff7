"""Loads from trace files."""

from __future__ import annotations

import time

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.inference.serving.traces import read_trace


def test_azure_traces_have_dates_and_tokens(tmp_path):
    path = tmp_path / "code.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
    )
    load = read_trace(path)
    assert load.arrival_s == pytest.approx([0, 0.052], abs=1e-6)
    assert load.prompt.tolist() == [4808, 3180]
    assert load.output.tolist() == [10, 8]


@pytest.mark.parametrize("zone", ["America/New_York", "UTC"])
def test_dates_with_and_without_a_fraction_or_a_zone_are_utc_where_the_machine_is_elsewhere(
    tmp_path, monkeypatch, zone
):
    """Azure's traces of 2024; at 06:00 UTC of that day clocks in New York go back by an hour."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    path = tmp_path / "conv.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-11-03 05:59:59.5,1,1\n2024-11-03 06:00:00+00:00,2,1\n2024-11-03 00:00:01.250000-06:00,3,1\n"
    )
    try:
        assert read_trace(path).arrival_s.tolist() == [0, 0.5, 1.75]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_hashes_of_blocks_may_be_of_any_size(tmp_path):
    path = tmp_path / "conversation.jsonl"
    row = '{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [%d, 3]}\n'
    path.write_text(row % 10**30 + row % (10**30 + 1) + row % 10**30)
    assert read_trace(path).hashes.tolist() == [0, 1, 2, 1, 0, 1]


def test_mooncake_traces_have_prefix_hashes_of_512_tokens(tmp_path):
    path = tmp_path / "conversation.jsonl"
    path.write_text(
        '{"timestamp": 1000, "input_length": 1100, "output_length": 52, "hash_ids": [900, 7, 8]}\n'
        '{"timestamp": 3000, "input_length": 1024, "output_length": 0, "hash_ids": [900, 9]}\n'
    )
    load = read_trace(path, speed=2)
    assert load.arrival_s.tolist() == [0, 1]
    assert load.output.tolist() == [52, 1]
    assert load.block_tokens == 512
    assert load.blocks.tolist() == [2, 2]
    assert load.hashes[0] == load.hashes[2]
    assert len(np.unique(load.hashes)) == 3


def test_plain_tables_are_sorted_by_arrival_and_cut(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("prompt,output,arrival_s\n30,3,2.5\n10,1,0.5\n20,2,1.5\n")
    load = read_trace(path, most=2)
    assert load.arrival_s.tolist() == [0, 1]
    assert load.prompt.tolist() == [10, 20]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n", "is empty"),
        ("a,b\n1,2\n", "no column for arrival"),
        ("arrival_s,prompt,output\n", "no requests"),
        ("arrival_s,prompt,output\n1,x,3\n", "line 2"),
        ("arrival_s,prompt,output\n1,0,3\n", "no prompt"),
        ("arrival_s,prompt,output\nnan,10,3\n", "line 2"),
        ("arrival_s,prompt,output\n0,10,3\ninf,10,3\n", "line 3"),
        ("arrival_s,prompt,output\n0,inf,3\n", "whole numbers of tokens"),
        ("arrival_s,prompt,output\n0,10.5,3\n", "whole numbers of tokens"),
        ("arrival_s,prompt,output\n0,10,-3\n", "whole numbers of tokens"),
        ("arrival_s,prompt,output\n0,99999999999,3\n", "whole numbers of tokens"),
        ('{"timestamp": 1}\n', "line 1"),
        ('{"timestamp": NaN, "input_length": 10, "output_length": 3}\n', "line 1"),
        ('{"timestamp": 0, "input_length": -10, "output_length": 3}\n', "line 1"),
        ('{"timestamp": 0, "input_length": 10, "output_length": 3}\n[1]\n', "line 2"),
        ('{"timestamp": 0, "input_length": 10, "output_length": 3, "hash_ids": "abc"}\n', "line 1"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path, text, message):
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_trace(path)
