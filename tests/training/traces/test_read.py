"""Files by content, ranks by folder, pattern or list; GOAL and the observer's JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.collectives.kinds import Collective
from weft.errors import ConfigError, FileError
from weft.training.traces.link import link
from weft.training.traces.read import read
from weft.training.traces.trace import Kind

GOAL = """// one message
num_ranks 2
/* the sender
   computes first */
rank 0 {
l1: calc 1000 cpu 1
l2: send 8b to 1 tag 3 cpu 0 nic 0
l2 requires l1
}

rank 1 {
l1: recv 8b from 0 tag 3
calc 5
}
"""


def _goal(folder: Path, text: str = GOAL) -> Path:
    path = folder / "schedule.txt"
    path.write_text(text)
    return path


def test_goal_is_read(tmp_path):
    trace = read([_goal(tmp_path)])
    calc, send = trace.ranks[0]
    assert (calc.duration_ps, send.peer, send.tag, send.size_bytes, send.after) == (1_000_000, 1, 3, 8, ("l1",))
    assert [node.kind for node in trace.ranks[1]] == [Kind.RECV, Kind.COMPUTE]
    assert trace.format == "GOAL"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("num_ranks 2", "num_ranks 3", "rank 2 of 3 is missing; there are files of 0, 1"),
        (
            "l2 requires l1",
            "l2 requires l9",
            r"schedule.txt:8: 'l2 requires l9' is not valid; expected .* no l9",
        ),
        ("l2: send", "l1: send", "another label: this rank has a l1"),
        ("send 8b to 1", "send 8b at 1", r"schedule.txt:7: .*expected send, recv, calc"),
        ("from 0 tag", "from -1 tag", "who of several comes first is not known before"),
        ("calc 5\n}", "calc 5\n", "a closing brace of the last rank"),
        ("rank 1 {", "rank 0 {", "each rank of 0 to 1 once"),
        ("rank 1 {", "rank 7 {", "each rank of 0 to 1 once"),
    ],
)
def test_errors_in_goal_files_are_named(tmp_path, old, new, said):
    with pytest.raises(ConfigError, match=said):
        read([_goal(tmp_path, GOAL.replace(old, new))])


def _observed(folder: Path, rank: int, **attributes: object) -> Path:
    """Return a trace as PyTorch's ExecutionTraceObserver writes it, without unread fields."""
    about = {
        "collective_name": "allreduce",
        "dtype": "Float",
        "in_msg_nelems": 100,
        "out_msg_nelems": 100,
        "global_rank_start": 0,
        "global_rank_stride": 1,
        "pg_name": "0",
        "pg_desc": "default_pg",
        "pg_size": 2,
    } | attributes
    attrs = [{"name": name, "type": "string", "value": value} for name, value in about.items() if value is not None]
    nodes = [
        {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "ctrl_deps": 1, "attrs": []},
        {
            "id": 3,
            "name": "## process_group:init ##",
            "inputs": {"values": ['[{"pg_name": "7", "ranks": [1, 0], "group_size": 2}]']},
        },
        {"id": 4, "name": "aten::add", "ctrl_deps": 1, "attrs": []},
        {"id": 5, "name": "record_param_comms", "ctrl_deps": 1, "attrs": attrs},
        {
            "id": 6,
            "name": "record_param_comms",
            "attrs": [{"name": "collective_name", "type": "string", "value": "wait"}],
        },
    ]
    path = folder / f"et_{rank}.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 9, "start_ts": 1, "nodes": nodes}))
    return path


@pytest.mark.parametrize(("name", "members"), [("0", (0, 1)), ("7", (1, 0))])
def test_the_observers_json_is_communication_in_order(tmp_path, name, members):
    for rank in range(2):
        _observed(tmp_path, rank, pg_name=name)
    trace = read([tmp_path])
    (node,) = trace.ranks[1]
    assert (node.id, node.collective, node.size_bytes) == (5, Collective.ALL_REDUCE, 400)
    assert trace.groups == {"default_pg": (members,)}
    assert "has no times" in trace.notes[0]
    link(trace)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"collective_name": None}, r"node 5 \(record_param_comms\).*PyTorch 2.5 and later"),
        ({"collective_name": "allfoo"}, r"node 5 \(allfoo\).*there is no collective 'allfoo'"),
        ({"collective_name": "send"}, "does not say to whom it sends"),
        ({"dtype": "Quux"}, "there is no dtype 'Quux'"),
        ({"in_msg_nelems": "many"}, "invalid literal for int"),
        ({"pg_name": None}, "no 'pg_name'"),
    ],
)
def test_missing_fields_of_the_observer_are_named(tmp_path, attributes, said):
    _observed(tmp_path, 0, **attributes)
    with pytest.raises(FileError, match=said):
        read([tmp_path])


def _operated(folder: Path, rank: int, groups: int = 1) -> Path:
    """Return a trace as PyTorch 2.14 wrote it with gloo, without unread fields."""
    tensor = [6, 7, 0, 1000, 4, "cpu"]
    result = [{"pg_name": str(group), "ranks": [], "group_size": 2} for group in range(groups)]
    called, kind = ("c10d::send", 54) if rank == 0 else ("c10d::recv_", 55)
    nodes = [
        {"id": 3, "name": "## process_group:init ##", "inputs": {"values": [json.dumps(result)]}},
        {
            "id": 9,
            "name": "c10d::allreduce_",
            "inputs": {"values": [[tensor], "<Object>", "<Object>", "<None>", False, -1]},
        },
        {"id": 10, "name": "gloo:all_reduce", "inputs": {"values": [tensor]}},
        {
            "id": 21,
            "name": "c10d::allgather_",
            "inputs": {"values": [[[tensor, tensor]], [tensor], "<Object>", False, -1]},
        },
        {"id": kind, "name": called, "inputs": {"values": [[tensor], "<Object>", 1 - rank, 5]}},
    ]
    path = folder / f"gloo_{rank}.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}))
    return path


def test_operators_of_other_backends_say_it_by_their_tensors(tmp_path):
    for rank in range(2):
        _operated(tmp_path, rank)
    trace = read([tmp_path])
    output = [(node.kind, node.collective, node.size_bytes, node.peer, node.tag) for node in trace.ranks[0]]
    assert output == [
        (Kind.COLLECTIVE, Collective.ALL_REDUCE, 4000, -1, 0),
        (Kind.COLLECTIVE, Collective.ALL_GATHER, 8000, -1, 0),
        (Kind.SEND, None, 4000, 1, 5),
    ]
    assert trace.groups == {"0": ((0, 1),)}
    assert link(trace).partner[2] == 5


def test_operators_of_one_of_many_groups_are_refused(tmp_path):
    with pytest.raises(FileError, match=r"node 9 \(allreduce\).*not said in which of 2 process groups"):
        read([_operated(tmp_path, 0, groups=2)])


def test_a_folder_a_pattern_and_a_list_are_the_same(tmp_path):
    paths = [_observed(tmp_path, rank) for rank in range(2)]
    result = [read(names).ranks for names in ([tmp_path], [f"{tmp_path}/et_*.json"], paths)]
    assert result[0] == result[1] == result[2]


def test_files_that_are_no_trace_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("a shopping list")
    with pytest.raises(FileError, match=r"notes.txt: a shopping list; expected Chakra \(.et\), PyTorch"):
        read([tmp_path])
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(FileError, match="expected Chakra"):
        read([tmp_path])


def test_files_of_two_kinds_are_refused(tmp_path):
    _observed(tmp_path, 0)
    _goal(tmp_path)
    with pytest.raises(ConfigError, match="a trace has files of one kind"):
        read([tmp_path])


@pytest.mark.parametrize("name", ["none/*.et", "none.et", "none/"])
def test_nothing_there_is_named(tmp_path, name):
    with pytest.raises(ConfigError, match="none"):
        read([tmp_path / name])
    with pytest.raises(ConfigError, match="give the files of a trace"):
        read([])


def test_a_file_whose_rank_nobody_knows_is_refused(tmp_path):
    _observed(tmp_path, 0).rename(tmp_path / "trace.json")
    with pytest.raises(ConfigError, match="whose rank is it"):
        read([tmp_path])


def test_two_files_of_one_rank_are_refused(tmp_path):
    _observed(tmp_path, 0)
    (tmp_path / "again_0.json").write_bytes((tmp_path / "et_0.json").read_bytes())
    with pytest.raises(ConfigError, match="are both of rank 0"):
        read([tmp_path])
