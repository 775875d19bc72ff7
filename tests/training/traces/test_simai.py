"""SimAI's workloads: rows become the operations of every GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.training.traces.made import routed

from weft.collectives.kinds import Collective
from weft.errors import FileError
from weft.training.traces import replay as module
from weft.training.traces.read import read
from weft.training.traces.replay import replay
from weft.training.traces.simai import POLICY
from weft.training.traces.trace import Trace

HEAD = (
    f"{POLICY} model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 8 ga: 1 all_gpus: 8 checkpoints: 0 checkpoint_initiates: 0"
)
ROWS = (
    "first -1 1000 ALLREDUCE 4096 2000 NONE 0 3000 ALLREDUCE 8192 100",
    "second -1 4000 ALLTOALL_EP 512 5000 ALLGATHER 2048 6000 REDUCESCATTER_DP_EP 1024 100",
)


def make(folder: Path, head: str = HEAD, rows: tuple[str, ...] = ROWS, count: int | None = None) -> Trace:
    path = folder / "workload.txt"
    path.write_text("\n".join((head, str(len(rows) if count is None else count), *rows, "")))
    return read([path])


def test_groups_are_tensor_then_expert_then_data(tmp_path):
    trace = make(tmp_path)
    assert trace.groups["TP"] == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert trace.groups["DP"] == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert trace.groups["EP"] == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert trace.groups["DP_EP"] == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert trace.alike


def test_stages_have_groups_of_their_own(tmp_path):
    trace = make(tmp_path, HEAD.replace("ep: 2 pp: 1", "ep: 1 pp: 2"))
    assert trace.groups["DP"] == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert "2 pipeline stages do all rows at the same time" in trace.notes[0]


def test_forward_then_back_and_only_weight_gradients_are_not_waited_for(tmp_path):
    nodes = make(tmp_path).ranks[0]
    output = [(node.name.removeprefix("all_"), node.duration_ps // 1000, node.size_bytes, node.after) for node in nodes]
    assert output == [
        ("first forward", 1000, 0, ()),
        ("reduce first forward", 0, 4096, (0,)),
        ("second forward", 4000, 0, (1,)),
        ("to_all second forward", 0, 512, (2,)),
        ("second input gradient", 5000, 0, (3,)),
        ("gather second input gradient", 0, 2048, (4,)),
        ("second weight gradient", 6000, 0, (5,)),
        ("reduce_scatter second weight gradient", 0, 1024, (6,)),
        ("update", 100, 0, (7,)),
        ("first input gradient", 2000, 0, ()),
        ("first weight gradient", 3000, 0, ()),
        ("reduce first weight gradient", 0, 8192, (10,)),
        ("update", 100, 0, (11,)),
    ]
    assert [node.group for node in nodes if node.collective] == ["TP", "EP", "TP", "DP_EP", "DP"]
    assert nodes[7].collective is Collective.REDUCE_SCATTER


def test_one_gpu_stands_for_all_where_they_are_many(tmp_path, monkeypatch):
    fabric = routed("star:hosts=8")
    whole = replay(make(tmp_path), fabric, engine="analytic")
    monkeypatch.setattr(module, "MOST_MESSAGES", 1)
    short = replay(make(tmp_path), fabric, engine="analytic")
    assert short.total_s == pytest.approx(whole.total_s)
    assert len(short.ranks) == 8


@pytest.mark.parametrize(
    ("head", "rows", "said"),
    [
        ("MICRO", ROWS, "the only policy whose groups SimAI defines"),
        (HEAD.replace("all_gpus: 8", "all_gpus: 6"), ROWS, "a multiple of tensor 2 x pipeline 1 x expert 2"),
        (HEAD.replace("all_gpus: 8", ""), ROWS, "all_gpus: and a number"),
        (HEAD.replace("checkpoints: 0", "checkpoints: 3"), ROWS, "weft does not run layers again"),
        (HEAD, ("a -1 1 NONE 0 1 NONE 0 1 NONE 0",), "12 columns, not 11"),
        (
            HEAD,
            ("a -1 1 SCATTERBRAIN 8 1 NONE 0 1 NONE 0 1",),
            r"workload.txt:3: 'SCATTERBRAIN' is not valid; expected NONE, ALL",
        ),
        (HEAD, ("a -1 1.5 NONE 0 1 NONE 0 1 NONE 0 1",), "a whole number in column 3"),
    ],
)
def test_unreadable_lines_are_named(tmp_path, head, rows, said):
    with pytest.raises(FileError, match=said):
        make(tmp_path, head, rows)


def test_a_file_cut_short_is_named(tmp_path):
    with pytest.raises(FileError, match="the number of rows below, 2: is the file cut short"):
        make(tmp_path, count=5)
