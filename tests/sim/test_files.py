"""Traffic files: written files read back, and a bad line is refused with its number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import ConfigError, FileError
from weft.routing.route import route
from weft.sim import patterns
from weft.sim.files import SUFFIXES, read_traffic, write_traffic
from weft.sim.traffic import PATH_SL, Operation, Traffic, Transport

COLUMNS = (
    *("src", "dst", "size_bytes", "start_ps", "delay_ps", "sl", "operation", "transport", "qp"),
    *("after_first", "after"),
)


@pytest.fixture(scope="module")
def star() -> weft.Fabric:
    return route(weft.load("star:hosts=4")).fabric


def assert_same(each: Traffic, other: Traffic) -> None:
    for name in COLUMNS:
        assert np.array_equal(getattr(each, name), getattr(other, name)), name


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
    """Draw messages of a star of four; dependent ones have a delay, the others a start."""
    fabric = route(weft.load("star:hosts=4")).fabric
    n = draw(st.integers(1, 6))

    def column(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=n, max_size=n))

    slots = [fabric[f"h{i}/1"].slot for i in (1, 2, 3, 4)]
    src = column(st.integers(0, 3))
    dst = [(s + step) % 4 for s, step in zip(src, column(st.integers(1, 3)), strict=True)]
    after = [sorted(draw(st.sets(st.integers(0, row - 1), max_size=3))) if row else [] for row in range(n)]
    times = column(st.integers(0, 10**12))
    return Traffic.make(
        [slots[i] for i in src],
        [slots[i] for i in dst],
        column(st.integers(0, 1 << 42)),
        start_ps=[0 if waits else ps for waits, ps in zip(after, times, strict=True)],
        delay_ps=[ps if waits else 0 for waits, ps in zip(after, times, strict=True)],
        sl=column(st.integers(PATH_SL, 15)),
        operation=column(st.sampled_from(Operation)),
        transport=column(st.sampled_from(Transport)),
        qp=column(st.integers(0, 1000)),
        after=after,
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=30)
@given(traffic=traffics())
def test_written_traffic_is_read_back(star, tmp_path_factory, suffix, traffic):
    path = tmp_path_factory.mktemp("traffic") / f"it{suffix}"
    write_traffic(path, star, traffic)
    assert_same(read_traffic(path, star), traffic)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_pattern_can_be_kept(tmp_path, suffix):
    fabric = route(weft.load("superpod:su=1,servers=2")).fabric
    traffic = patterns.rails(fabric)
    write_traffic(tmp_path / f"rails{suffix}", fabric, traffic)
    assert_same(read_traffic(tmp_path / f"rails{suffix}", fabric), traffic)


def test_a_csv_by_hand(star, tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("# two steps\ndst,src,size,after,start_ns\nh2,h1,2M,,1.5\n\nh3,h2/1,64K,0,500\nh4,h2,8,0 1,\n")
    traffic = read_traffic(path, star)
    assert traffic.size_bytes.tolist() == [2 << 20, 64 << 10, 8]
    assert traffic.start_ps.tolist() == [1500, 0, 0]
    assert traffic.delay_ps.tolist() == [0, 500_000, 0]
    assert traffic.after_first.tolist() == [0, 0, 1, 3]
    assert traffic.after.tolist() == [0, 0, 1]
    assert traffic.description == "steps.csv"


def test_json_by_hand(star, tmp_path):
    path = tmp_path / "steps.json"
    path.write_text(
        '{"description": "two steps", "outstanding": 16, "messages": [{"src": "h1", "dst": "h2", "size": "1K"},'
        '{"src": "h2", "dst": "h1", "size": 7, "after": [0], "operation": "send", "transport": "uc", "sl": 4}]}'
    )
    traffic = read_traffic(path, star)
    assert (traffic.description, traffic.outstanding) == ("two steps", 16)
    assert traffic.size_bytes.tolist() == [1024, 7]
    assert traffic.operation.tolist() == [Operation.WRITE, Operation.SEND]
    assert traffic.sl.tolist() == [PATH_SL, 4]


@pytest.mark.parametrize(
    ("line", "read", "expected"),
    [
        ("h1,h9,1M,0,0", "h9", "did you mean h4"),
        ("h1,leaf1,1M,0,0", "leaf1", "cannot send or receive"),
        ("h1,h1/1,1M,0,0", "h1/1", "another receiver"),
        ("h1,h2,1X,0,0", "size 1X", "8, 4K, 1M or 8G"),
        ("h1,h2,-5,0,0", "size -5", "8, 4K, 1M or 8G"),
        ("h1,h2,99999T,0,0", "size 99999T", "up to 4 TiB"),
        ("h1,h2,1M,soon,0", "start_ns soon", "a number"),
        ("h1,h2,1M,-1,0", "start_ns -1", ">= 0"),
        ("h1,h2,1M,nan,0", "start_ns nan", ""),
        ("h1,h2,1M,0,16", "sl 16", "<= 15"),
        ("h1,h2,1M,0,x", "sl x", "a whole number"),
        ("h1,h2,1M,0", "h1,h2,1M,0", "5 cells as in the first line, not 4"),
        ("h1,,1M,0,0", "h1,,1M,0,0", "a value for dst"),
        ('h1,"h2,1M,0,0', "unexpected end of data", "comma-separated"),
    ],
)
def test_a_bad_line_of_csv_is_named(star, tmp_path, line, read, expected):
    path = tmp_path / "bad.csv"
    path.write_text(f"src,dst,size,start_ns,sl\nh1,h2,1M,0,0\n{line}\n")
    with pytest.raises(FileError) as refused:
        read_traffic(path, star)
    assert refused.value.line == 3
    assert refused.value.read == read
    assert expected in refused.value.expected


@pytest.mark.parametrize(
    ("text", "line", "read", "expected"),
    [
        ("", None, "no line", "header line"),
        ("src,dst,size\n", None, "no message", "at least one"),
        ("src,dst\nh1,h2\n", 1, "src,dst", "column size too"),
        ("src,dst,size,colour\n", 1, "colour", "column names"),
        ("src,dst,size,src\n", 1, "src,dst,size,src", "column src only once"),
        ("src,dst,size,after\nh1,h2,8,1\n", 2, "after 1", "0 to 0; this is 0"),
        ("src,dst,size,after\nh1,h2,8,\nh2,h3,8,1\n", 3, "after 1", "this is 1"),
        ("src,dst,size,after\nh1,h2,8,\nh2,h3,8,x\n", 3, "after x", "a whole number"),
        ("src,dst,size,operation\nh1,h2,8,push\n", 2, "operation push", "read, send or write"),
    ],
)
def test_a_bad_csv_is_refused(star, tmp_path, text, line, read, expected):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(FileError) as refused:
        read_traffic(path, star)
    assert (refused.value.line, refused.value.read) == (line, read)
    assert expected in refused.value.expected


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"messages": [\n{"src": "h1", "dst": "h2", "size": 8},\n{"src": "h1"}]}', 3, "a mapping with dst"),
        ('{"messages": [\n{"src": "h1", "dst": "h2", "size": 8, "sl": 77}]}', 2, "sl 77"),
        (
            '{"messages": [\n{"src": "h1", "dst": "h2", "size": 8, "tag": 1}]}',
            2,
            "'tag' is not valid; expected one of the keys src, dst, size",
        ),
        ('{"messages": [\n{"src": "h1", "dst": "h7", "size": 8}]}', 2, "h7"),
        ('{"messages": [\n{"src": "h1", "dst": "h2", "size": 8},\n]}', 3, "JSON"),
        ('{"messages": []}', None, "no message"),
        ("[]", None, "expected a mapping"),
        ('{"mesages": []}', None, "unknown key mesages; expected messages, or another of the keys"),
    ],
)
def test_a_bad_json_is_refused(star, tmp_path, text, line, words):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(FileError) as refused:
        read_traffic(path, star)
    assert refused.value.line == line
    assert words in str(refused.value)


def test_other_suffixes_are_refused(star, tmp_path):
    with pytest.raises(ConfigError, match=r"\.csv or \.json"):
        read_traffic(tmp_path / "traffic.xml", star)


def test_csv_refuses_outstanding_messages(star, tmp_path):
    traffic = Traffic.of(star, [("h1", "h2", 8)], outstanding=16)
    with pytest.raises(ConfigError, match=r"outstanding=16; write a \.json"):
        write_traffic(tmp_path / "it.csv", star, traffic)
    assert list(tmp_path.iterdir()) == []
    write_traffic(tmp_path / "it.json", star, traffic)
    assert read_traffic(tmp_path / "it.json", star).outstanding == 16
