"""PyTorch's profiler: computing, communication with its group, and dependencies."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from weft.collectives.kinds import Collective
from weft.errors import ConfigError, FileError
from weft.training.traces.alone import run_alone
from weft.training.traces.link import link
from weft.training.traces.read import read
from weft.training.traces.trace import Kind

US = 10**6  # picoseconds
BEGIN_US = 4458676524648.797  # profilers count from the machine's start


def kernel(begin_us: float, end_us: float, name: str = "gemm", stream: int = 7, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": BEGIN_US + begin_us,
        "dur": end_us - begin_us,
        "args": {"stream": stream, **args},
    }


def nccl(begin_us: float, end_us: float, name: str = "allreduce", stream: int = 40, **args: Any) -> dict[str, Any]:
    about = {
        "Collective name": name,
        "In msg nelems": 1024,
        "Out msg nelems": 1024,
        "dtype": "BFloat16",
        "Group size": 2,
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": "[0, 1]",
    }
    return kernel(begin_us, end_us, f"ncclDevKernel_{name}", stream, **about | args)


def write(folder: Path, *ranks: list[dict[str, Any]], world: int | None = None, **info: Any) -> Path:
    for rank, events in enumerate(ranks):
        about = {"backend": "nccl", "rank": rank, "world_size": world or len(ranks), **info}
        text = json.dumps({"schemaVersion": 1, "distributedInfo": about, "traceEvents": events})
        (folder / f"worker{rank}.pt.trace.json.gz").write_bytes(gzip.compress(text.encode()))
    return folder


class _AsItWas:
    """A model in which collectives take their recorded times after the last rank has arrived."""

    def __init__(self, *us: float) -> None:
        self.us = list(us)

    def collective_ps(self, meeting: Any) -> int:
        if meeting not in self.__dict__:
            self.__dict__[meeting] = round(self.us.pop(0) * US)
        return self.__dict__[meeting]

    def messages_ps(self, _linked: Any) -> dict[Any, int]:
        return {}


def test_on_a_network_as_it_was_the_trace_comes_out_as_it_was(tmp_path):
    """Rank 1 comes 5 us late to the first; both compute beside it, wait for it, and the host of rank 0 dawdles."""
    fast = [kernel(0, 4), kernel(4, 10), nccl(10, 30), kernel(10.5, 20), kernel(30.5, 40), nccl(41, 46), kernel(50, 51)]
    slow = [kernel(0, 15), nccl(15, 30), kernel(30, 41), nccl(41, 46)]
    trace = read([write(tmp_path, fast, slow)])
    linked = link(trace)
    times = run_alone(linked, _AsItWas(15, 5))  # type: ignore[arg-type]
    ends_us = {(linked.rank[at], node.lane): times.end_ps[at] / US for at, node in enumerate(linked.nodes) if node.lane}
    assert ends_us == pytest.approx(
        {(0, "stream 7"): 51, (0, "stream 40"): 46, (1, "stream 7"): 41, (1, "stream 40"): 46}, abs=0.01
    )
    begins_us = sorted(times.begin_ps[at] / US for at, node in enumerate(linked.nodes) if node.kind is Kind.COLLECTIVE)
    assert begins_us == pytest.approx([10, 15, 41, 41], abs=0.01)


def test_computing_waits_only_for_what_it_paused_for(tmp_path):
    """The second kernel ran on beside the collective; the third came after a pause in which it ended."""
    events = [kernel(0, 10), nccl(10, 30), kernel(10, 25), kernel(30, 40)]
    nodes = read([write(tmp_path, events, events)]).ranks[0]
    first, beside, talk, after = nodes
    assert (talk.after, beside.after, after.after) == ((first.id,), (), (talk.id,))
    assert after.duration_ps == pytest.approx(10 * US, rel=1e-3)


def test_kernels_without_communication_between_them_are_one_piece(tmp_path):
    events = [kernel(at, at + 1) for at in range(50)]
    (node,) = read([write(tmp_path, events)]).ranks[0]
    assert node.name == "gemm and 49 more"
    assert node.duration_ps == pytest.approx(50 * US, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", Collective.ALL_REDUCE),
        ("_allgather_base", Collective.ALL_GATHER),
        ("all_gather_into_tensor_coalesced", Collective.ALL_GATHER),
        ("_reduce_scatter_base", Collective.REDUCE_SCATTER),
        ("reduce_scatter_tensor_coalesced", Collective.REDUCE_SCATTER),
        ("all_to_allv", Collective.ALL_TO_ALL),
        ("broadcast", Collective.BROADCAST),
        ("barrier", Collective.BARRIER),
    ],
)
def test_collectives_by_pytorchs_names(tmp_path, name, kind):
    events = [kernel(0, 1), nccl(1, 2, name, **{"In msg nelems": 10, "Out msg nelems": 20})]
    node = read([write(tmp_path, events, events)]).ranks[0][1]
    assert (node.collective, node.size_bytes) == (kind, 40)


def test_sends_and_receives_find_each_other(tmp_path):
    ranks = {"Src Rank": 0, "Dst Rank": 1}
    trace = read([write(tmp_path, [nccl(0, 5, "send", **ranks)], [nccl(0, 5, "recv", **ranks)])])
    linked = link(trace)
    assert [(node.kind, node.peer) for node in linked.nodes] == [(Kind.SEND, 1), (Kind.RECV, 0)]
    assert linked.partner == [1, 0]


@pytest.mark.parametrize(
    ("args", "config"),
    [
        ({"Process Group Ranks": "[0, 1, ..., 3]", "Process Group Name": "5"}, True),
        ({"Process Group Ranks": "[0, 1, ..., 3]", "Global rank start": 0, "Global rank stride": 2}, False),
        ({"Process Group Ranks": "[0, 2]"}, False),
    ],
)
def test_ranks_of_a_group_are_found_where_the_file_has_them(tmp_path, args, config):
    """Long lists are cut in the event; the list of groups has them, or their stride."""
    info = {"pg_config": [{"pg_name": "5", "ranks": [0, 2]}]} if config else {}
    talks, quiet = [nccl(0, 1, **args)], [kernel(0, 1)]
    trace = read([write(tmp_path, talks, quiet, talks, quiet, **info)])
    assert trace.groups == {"default_pg": ((0, 2),)}


def test_one_name_for_two_groups_is_two(tmp_path):
    near, far = nccl(0, 1, **{"Process Group Ranks": "[0, 1]"}), nccl(0, 1, **{"Process Group Ranks": "[2, 3]"})
    trace = read([write(tmp_path, [near], [near], [far], [far])])
    assert trace.groups == {"default_pg": ((0, 1),), "default_pg (2)": ((2, 3),)}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([nccl(0, 1, "allfoo")], r"ncclDevKernel_allfoo \(allfoo\).*there is no collective 'allfoo'"),
        ([nccl(0, 1, dtype="Quux")], "there is no dtype 'Quux'"),
        ([kernel(0, 1, "ncclKernel_AllReduce_RING")], "its 'Collective name' and sizes: PyTorch 2.3"),
        ([{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 0, "dur": 1}], "no kernel"),
        ([nccl(0, 1, "send")], "no 'Dst Rank'"),
        ([nccl(0, 1, **{"In msg nelems": "many"})], "invalid literal for int"),
        ([kernel(0, 1) | {"ts": "soon"}], "gemm: could not convert string to float"),
        (["gemm"], "the JSON of PyTorch's profiler"),
    ],
)
def test_events_that_cannot_be_run_are_named(tmp_path, events, said):
    with pytest.raises(FileError, match=said):
        read([write(tmp_path, events, events)])


def test_missing_ranks_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"ranks 1, 2, 3 of 4 are missing; there are files of 0"):
        read([write(tmp_path, [kernel(0, 1)], world=4)])


def test_two_files_of_one_rank_are_refused(tmp_path):
    write(tmp_path, [kernel(0, 1)])
    (tmp_path / "again.json").write_bytes(gzip.decompress((tmp_path / "worker0.pt.trace.json.gz").read_bytes()))
    with pytest.raises(ConfigError, match="are both of rank 0"):
        read([tmp_path])


def test_a_file_of_gzip_cut_short_is_refused(tmp_path):
    path = write(tmp_path, [kernel(0, 1)]) / "worker0.pt.trace.json.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FileError, match="a complete gzip file"):
        read([path])
