"""Connection matrices of htsim as traffic."""

from __future__ import annotations

import pytest

import weft
from weft.errors import FileError
from weft.fabric.model import Fabric
from weft.routing.route import route
from weft.sim.files import read_traffic

MATRIX = """Nodes 4
Connections 4
Triggers 2
0->1 id 1 start 0 size 2000000 send_done_trigger 1
1->2 id 2 trigger 1 size 1000 recv_done_trigger 2
3->2 id 3 start 5000 size 1000 recv_done_trigger 2   # another one
2->0 id 4 trigger 2 start 3000 size 7 prio 3
trigger id 1 oneshot
trigger id 2 barrier count 2
"""


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return route(weft.load("star:hosts=4")).fabric


def test_a_connection_matrix_is_read_with_times_and_triggers(tmp_path, fabric):
    (tmp_path / "ring.cm").write_text(MATRIX)
    traffic = read_traffic(tmp_path / "ring.cm", fabric)
    for ends, names in ((traffic.src, "h1 h2 h4 h3"), (traffic.dst, "h2 h3 h3 h1")):
        assert [fabric.port(slot).node.name for slot in ends.tolist()] == names.split()
    assert traffic.size_bytes.tolist() == [2_000_000, 1000, 1000, 7]
    assert traffic.start_ps.tolist() == [0, 0, 5000, 0]
    assert traffic.delay_ps.tolist() == [0, 0, 0, 3000]  # after a trigger, the start is a delay
    first, after = traffic.after_first.tolist(), traffic.after.tolist()
    assert [after[first[row] : first[row + 1]] for row in range(4)] == [[], [0], [], [1, 2]]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("Connections 4", "Connections 5", "4 connections"),
        ("0->1", "0->9", "node 9"),
        ("0->1", "1->1", "two different nodes"),
        ("size 7", "bytes 7", "among them size"),
        ("size 7", "size x", "a whole number"),
        ("oneshot", "multishot", "oneshot, or"),
        ("count 2", "count 3", "3 connections that activate it; 2 do"),
        ("Triggers 2", "Failures 1", "--fault"),
    ],
)
def test_a_wrong_connection_matrix_is_refused(tmp_path, fabric, old, new, why):
    (tmp_path / "bad.cm").write_text(MATRIX.replace(old, new))
    with pytest.raises(FileError, match=why):
        read_traffic(tmp_path / "bad.cm", fabric)
