"""OSU's programs on fabrics: closed forms first, then orders of times."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from weft.collectives.kinds import Collective
from weft.collectives.mpi import bench, clock
from weft.collectives.mpi.bench import Settings, Table, find_test, run
from weft.collectives.mpi.bench import Test as OsuTest
from weft.collectives.mpi.clock import Step
from weft.collectives.mpi.clock import run as run_steps
from weft.collectives.mpi.interconnect import _GRID, FabricInterconnect
from weft.collectives.mpi.libraries import library
from weft.collectives.mpi.message import Messages, loopback, uses_datagrams
from weft.collectives.mpi.report import where
from weft.collectives.mpi.times import times
from weft.collectives.ranks import Ranks, place
from weft.collectives.schedules.knomial import tree_barrier
from weft.collectives.schedules.program import Program, Sends
from weft.collectives.schedules.recursive import dissemination_barrier, pairwise_all_to_all
from weft.collectives.schedules.ring import ring_all_reduce
from weft.collectives.schedules.tree import tree_broadcast
from weft.errors import ConfigError, UnknownName
from weft.fabric.spec import load
from weft.fabric.timing import timings
from weft.sim.engine import Network, Options, Paths
from weft.sim.perftest import prepare


@pytest.fixture(scope="module")
def placed():
    recorded: dict[str, Ranks] = {}
    return lambda spec: recorded.setdefault(spec, place(prepare(load(spec))))


def values(ranks: Ranks, test: str, **settings: object) -> Table:
    return run(ranks, Settings(test=OsuTest(test), **settings))  # type: ignore[arg-type]


def messages(ranks: Ranks, ppn: int = 1, **options: object) -> Messages:
    return Messages(
        interconnect=FabricInterconnect(ranks=ranks, ppn=ppn, options=Options(**options)),
        rules=library("openmpi").message_rules(),
    )  # type: ignore[arg-type]


def test_a_small_message_is_the_networks_and_two_calls(placed):
    ranks = placed("star:hosts=2,server=host-hdr")
    (row,) = values(ranks, "latency", only=(1,)).rows
    recorded = times().message
    lone_us = float(FabricInterconnect(ranks=ranks, ppn=1, options=Options()).lone_us(1.0))
    assert row.value == pytest.approx(lone_us + recorded.send_us + recorded.receive_us, abs=1e-3)
    assert row.low < row.value < row.high
    assert row.how == "eager"


def test_a_lone_message_takes_as_long_as_those_that_were_run_and_keeps_the_pace_of_the_largest(placed):
    pair = FabricInterconnect(ranks=placed("star:hosts=2,server=host-hdr"), ppn=1, options=Options())
    pair.lone = 0.25 * _GRID
    sizes = np.array([1.0, 700.0, 1 << 20, 1 << 30, 1 << 33])
    assert pair.lone_us(sizes) == pytest.approx(0.25 * sizes)


@pytest.mark.parametrize(("test", "most"), [("bw", 25_000.0), ("bibw", 50_000.0)])
def test_no_bandwidth_is_more_than_the_cable_carries(placed, test, most):
    (row,) = values(placed("star:hosts=2,server=host-hdr"), test, only=(4 << 20,)).rows
    assert row.low < row.value < row.high == most


def test_a_rendezvous_is_one_more_small_message_and_its_own_work(placed):
    ranks, recorded = placed("star:hosts=2,server=host-hdr"), times().message
    (get,) = values(ranks, "latency", only=(1 << 20,)).rows
    (put,) = values(ranks, "latency", only=(1 << 20,), mpi="mvapich2").rows
    interconnect = FabricInterconnect(ranks=ranks, ppn=1, options=Options())
    assert get.how == put.how == "rendezvous"
    own_us = recorded.send_us + recorded.receive_us + recorded.rendezvous_us
    assert get.value == pytest.approx(float(interconnect.lone_us(1.0)) + float(interconnect.lone_us(1 << 20)) + own_us)
    assert put.value - get.value == pytest.approx(float(interconnect.lone_us(1.0)))  # it says where to write


def test_memory_that_is_registered_every_time_is_paid_at_both_ends(placed):
    ranks = placed("star:hosts=2,server=host-hdr")
    for size, ends in ((1 << 20, 2), (1024, 0)):  # a small one is copied: nothing is registered
        (remaining,) = values(ranks, "latency", only=(size,)).rows
        (again,) = values(ranks, "latency", only=(size,), cached=False).rows
        assert again.value - remaining.value == pytest.approx(ends * times().registration.us(size))


def test_a_window_of_large_messages_fills_the_line_and_both_ways_twice(placed):
    ranks = placed("star:hosts=2,server=host-hdr")
    (item,) = values(ranks, "bw", only=(4 << 20,)).rows
    (both,) = values(ranks, "bibw", only=(4 << 20,)).rows
    line = 1 / FabricInterconnect(ranks=ranks, ppn=1, options=Options()).us_per_byte
    assert item.value == pytest.approx(line, rel=0.02)
    assert both.value == pytest.approx(2 * line, rel=0.02)
    (single,) = values(ranks, "bw", only=(4 << 20,), window=1).rows
    assert single.value < item.value


def test_a_barrier_of_doublings_takes_as_many_steps(placed):
    """Eight hosts on one switch: three rounds, each a call at both ends and a flight."""
    ranks = placed("star:hosts=8,server=host-hdr")
    step_us = (
        float(FabricInterconnect(ranks=ranks, ppn=1, options=Options()).lone_us(1.0))
        + times().message.send_us
        + times().message.receive_us
    )
    took = clock.run((Step(program=dissemination_barrier(8), size_bytes=0),), messages(ranks))
    assert took == pytest.approx(np.full(8, 3 * step_us), abs=0.01)


def test_ranks_begin_as_they_leave_the_barrier_before(placed):
    """Open MPI's barrier of 256 ranks is a tree: its leaves leave last, and ranks that left first wait for them."""
    ranks, tree = placed("star:hosts=16,server=host-hdr"), Step(program=tree_barrier(256), size_bytes=0)
    left = clock.run((tree,), messages(ranks, 16))
    again = clock.run((tree,), messages(ranks, 16), left) - left
    (row,) = values(ranks, "barrier", ppn=16).rows
    assert (row.value, row.least, row.most) == pytest.approx((again.mean(), again.min(), again.max()))
    (after,) = values(ranks, "allreduce", ppn=16, only=(8,)).rows
    (at_once,) = values(ranks, "allreduce", ppn=16, only=(8,), together=True).rows
    assert 0 < after.value - at_once.value < left.max() - left.min()


def test_rounds_that_repeat_are_counted_as_those_that_were_run(placed, monkeypatch):
    ranks, step = placed("star:hosts=40,server=host-hdr"), Step(program=ring_all_reduce(40), size_bytes=40 << 10)
    short = clock.run((step,), messages(ranks))
    monkeypatch.setattr(clock, "_FEWEST_REPEATED", 1000)
    assert short == pytest.approx(clock.run((step,), messages(ranks)), rel=0.01)


def test_of_very_many_rounds_that_differ_some_say_how_long_all_take(placed, monkeypatch):
    ranks, step = placed("star:hosts=40,server=host-hdr"), Step(program=pairwise_all_to_all(40), size_bytes=40 << 10)
    whole = clock.run((step,), messages(ranks))
    monkeypatch.setattr(clock, "_MOST_DIFFERENT", 10)
    assert clock.run((step,), messages(ranks)).mean() == pytest.approx(whole.mean(), rel=0.02)


def test_processes_of_a_node_share_its_adapter_and_talk_in_memory(placed):
    ranks = placed("star:hosts=4,server=host-hdr")
    (item,) = values(ranks, "alltoall", only=(65_536,)).rows
    (many,) = values(ranks, "alltoall", only=(65_536,), ppn=4).rows
    assert many.value > 3 * item.value  # twelve remote peers each, four senders on one adapter
    (inside,) = values(placed("star:hosts=1"), "latency", only=(8,), ppn=2).rows
    (outside,) = values(ranks, "latency", only=(8,)).rows
    assert inside.value < outside.value / 2
    assert inside.how == "shared memory, eager"


def test_more_switches_or_an_oversubscribed_tree_take_longer(placed):
    flat = placed("star:hosts=16,server=host-hdr")
    tree = placed("fat-tree:hosts=16,server=host-hdr,radix=8")
    assert values(tree, "barrier").rows[0].value > values(flat, "barrier").rows[0].value
    thin = placed("fat-tree:hosts=16,server=host-hdr,radix=8,oversubscription=3")
    wide, narrow = (values(item, "alltoall", only=(1 << 20,)).rows[0].value for item in (tree, thin))
    assert narrow > 1.5 * wide


def test_switches_that_add_are_faster_than_hosts_and_take_no_longer_with_more_of_them(placed):
    few, many = (placed(f"fat-tree:hosts={n},server=host-hdr,radix=16") for n in (32, 64))
    for ranks in (few, many):
        hosts, switches = (values(ranks, "allreduce", only=(8,), ppn=2, sharp=on).rows[0].value for on in (False, True))
        assert switches < hosts
    sharp = [values(ranks, "allreduce", only=(8,), sharp=True).rows[0].value for ranks in (few, many)]
    assert sharp[0] == pytest.approx(sharp[1])
    assert (
        values(few, "reduce", only=(8,), ppn=4, sharp=True).rows[0].least
        < values(few, "barrier", sharp=True).rows[0].value
    )


def test_tcp_takes_as_long_as_its_kernel(placed):
    ranks = placed("star:hosts=4,speed=100GbE")
    rdma, tcp = (
        values(ranks, "allreduce", only=(8,), options=Options(network=item)).rows[0].value for item in ("roce", "tcp")
    )
    assert tcp > 15 * rdma


def test_messages_that_leave_a_server_together_wait_for_its_kernel(placed):
    """Partners on two servers: the last of p messages waits for p - 1."""
    ranks, tcp = placed("star:hosts=2,speed=100GbE"), times().tcp
    took = {
        ppn: clock.run((Step(program=_partners(ppn), size_bytes=0),), messages(ranks, ppn, network=Network.TCP)).max()
        for ppn in (1, 5)
    }
    assert took[5] - took[1] == pytest.approx(4 * tcp.crowd_us, abs=0.01)


def test_messages_of_a_server_to_itself_wait_for_its_adapter(placed):
    """Neighbours, in both directions: the last of eight messages waits for seven, that of two for one."""
    ranks = placed("star:hosts=2,server=host-hdr")
    took = {}
    for ppn in (2, 8):
        rank = np.arange(2 * ppn)
        sends = Sends.make(rank, rank ^ 1, 0, add=True)
        program = Program.of("neighbours", Collective.BARRIER, 2 * ppn, (1,), lambda _number, made=sends: made, 1)
        through = replace(messages(ranks, ppn), loopback=True)
        took[ppn] = clock.run((Step(program=program, size_bytes=0),), through).max()
    assert took[8] - took[2] == pytest.approx(6 * times().adapter.message_ns / 1e3)


def _partners(ppn: int) -> Program:
    """Return a barrier's messages between rank r of one server and rank r of the other."""
    rank = np.arange(2 * ppn)
    sends = Sends.make(rank, (rank + ppn) % (2 * ppn), 0, add=True)
    return Program.of("partners", Collective.BARRIER, 2 * ppn, (1,), lambda _number: sends, n_chunks=1)


@pytest.mark.parametrize(
    ("tls", "without"),
    [  # as UCX reads UCX_TLS: cma copies long messages and carries no small one
        ("", False),
        ("all", False),
        ("rc,sm", False),
        ("posix,rc", False),
        ("^posix", False),
        ("^sm", True),
        ("ib,self", True),
        ("ud,self,cma", True),
    ],
)
def test_shared_memory_is_there_unless_ucx_tls_leaves_it_out(tls, without):
    assert loopback(tls) is without


def test_short_messages_in_shared_memory_are_copied_twice_and_long_ones_once(placed):
    """In by the sender, at the rate of copies in caches, and out by the receiver; directly from core to core."""
    messages = Messages(
        interconnect=FabricInterconnect(ranks=placed("star:hosts=1"), ppn=2, options=Options()),
        rules=library("openmpi").message_rules(),
    )
    constants = times()
    empty, short, long = (messages.inside(np.array([float(size)])).total[0] for size in (0, 8192, 16_384))
    out_us = 8.192 / constants.shared.core_gbyte_s
    assert short - empty == pytest.approx(8.192 / constants.message.copy_gbyte_s + out_us)
    asked_us = constants.shared.flight_us + constants.shared.rendezvous_us
    assert long - empty == pytest.approx(2 * out_us + asked_us)


def test_without_shared_memory_a_server_talks_to_itself_through_its_adapter(placed):
    ranks = placed("star:hosts=2,server=host-hdr")
    sizes = (8, 1 << 20)
    usual, other = (values(ranks, "allreduce", ppn=8, only=sizes, ucx_tls=tls).rows for tls in ("rc,sm", "ib,self"))
    assert all(through.value > 1.5 * shared.value for shared, through in zip(usual, other, strict=True))
    (alone,), (two,) = (values(ranks, "latency", only=(8,), ucx_tls=tls).rows for tls in ("", "ib"))
    assert alone.value == two.value  # between servers nothing changes
    with pytest.raises(ConfigError, match="h1, which is alone, talks to itself is not known"):
        values(placed("star:hosts=1"), "latency", ppn=2, ucx_tls="ib")
    with pytest.raises(ConfigError, match="how a server with TCP talks to itself is not known"):
        values(placed("star:hosts=2,speed=100GbE"), "bcast", ppn=2, ucx_tls="tcp", options=Options(network="tcp"))


def test_ranks_that_are_dealt_out_talk_over_the_network_where_neighbours_did_not(placed):
    ranks = placed("star:hosts=4,server=host-hdr")
    slot, node = (
        values(ranks, "allreduce", ppn=8, only=(1 << 20,), map_by=by).rows[0].value for by in ("slot", "node")
    )
    assert node > 1.2 * slot
    interconnect = FabricInterconnect(ranks=ranks, ppn=2, options=Options(), by_node=True)
    assert interconnect.slot(np.arange(8)).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    levels = [
        values(ranks, "allreduce", ppn=8, only=(8,), map_by=by, coll="han").rows[0].value for by in ("slot", "node")
    ]
    assert levels[0] == levels[1]  # an algorithm with a first step inside nodes uses the ranks' places


def test_srd_sprays_its_packets_and_is_a_kind_of_its_own(placed):
    ranks = placed("fat-tree:hosts=16,radix=8,server=host-efa")
    interconnect = FabricInterconnect(ranks=ranks, ppn=1, options=Options())
    assert (interconnect.options.paths, interconnect.carrier) == (Paths.SPRAY, "SRD")
    assert FabricInterconnect(ranks=ranks, ppn=1, options=Options(paths=Paths.ECMP)).options.paths is Paths.ECMP
    assert FabricInterconnect(ranks=ranks, ppn=1, options=Options(network=Network.TCP)).carrier == "TCP"
    assert interconnect.crowd_us == timings().adapter["EFA-1x100"].gap_ns / 1e3
    (row,) = values(ranks, "allreduce", only=(8,)).rows
    assert row.kind[0] == "collectives over SRD"


@pytest.mark.parametrize("test", [one for one in OsuTest if one.collective])
@pytest.mark.parametrize("mpi", ["openmpi", "mvapich2"])
def test_every_collective_runs_and_grows_with_its_size(placed, test, mpi):
    sizes = (64, 1 << 20) if test is not OsuTest.BARRIER else ()
    rows = values(placed("star:hosts=4,server=host-hdr"), test, ppn=2, mpi=mpi, only=sizes).rows
    assert all(0 < row.least <= row.value <= row.most and row.how for row in rows)
    assert [row.value for row in rows] == sorted(row.value for row in rows)


def test_sizes_are_osus(placed):
    assert [row.size_bytes for row in values(placed("star:hosts=2"), "allreduce").rows] == [4 << n for n in range(19)]
    assert list(Settings(test=OsuTest.BCAST, min_bytes=2, max_bytes=9).sizes) == [2, 4, 8]
    assert list(Settings(test=OsuTest.BARRIER).sizes) == [0]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"ppn": 0}, "--ppn must be 1 to 1,024"),
        ({"window": 0}, "-W 0 is not from 1"),
        ({"min_bytes": 8, "max_bytes": 4}, "-m 8:4: osu_latency has sizes from 1"),
        ({"max_bytes": 1 << 40}, "to 1 GiB"),
        ({"sharp": True}, "allreduce, bcast, reduce, barrier, not for latency"),
        ({"map_by": "rank"}, "slot"),
        ({"ucx_tls": "ib,shmem"}, "shmem"),
        ({"ucx_tls": "ib", "mpi": "mvapich2"}, "mvapich2 does not run over UCX"),
        ({"coll": "ucc"}, "--coll ucc"),
    ],
)
def test_invalid_values_are_refused_by_flag(settings, error):
    with pytest.raises(ConfigError, match=error):
        Settings(test=OsuTest.LATENCY, **settings)


def test_jobs_that_cannot_be_are_refused(placed):
    with pytest.raises(ConfigError, match="needs two processes: give two servers, or --ppn 2"):
        values(placed("star:hosts=1"), "allreduce")
    with pytest.raises(ConfigError, match="switches of InfiniBand add"):
        values(placed("star:hosts=4,speed=100GbE"), "allreduce", sharp=True)
    with pytest.raises(ConfigError, match="h1 is alone"):
        values(placed("star:hosts=1"), "allreduce", sharp=True, ppn=2)
    assert values(placed("star:hosts=2,server=host-hdr"), "allreduce", sharp=True, only=(8,)).rows  # two can
    with pytest.raises(UnknownName, match="calibration"):
        find_test("latenzy", "calibration")


def test_a_stream_over_tcp_takes_a_processor_for_each_message(placed):
    """Small messages are bound by calls into the kernel, not by the line."""
    ranks = placed("star:hosts=2,speed=100GbE")
    (stream,) = values(ranks, "bw", only=(1024,), options=Options(network=Network.TCP)).rows
    assert stream.value < 1024 / times().tcp.stream_us
    assert stream.kind[0] == "bandwidth over TCP"


def test_collectives_in_pods_wait_by_the_square_of_the_servers(placed):
    ranks = placed("fat-tree:hosts=16,server=host-hdr,radix=36")
    tables = [values(ranks, "allreduce", only=(8,), ppn=4, pods=flag) for flag in (False, True)]
    bare, pods = (table.rows[0] for table in tables)
    assert [where(table).endswith("over infiniband, pods") for table in tables] == [False, True]
    assert pods.value - bare.value == pytest.approx(times().pods.square_us * 16**2)
    assert pods.kind[0] == "collectives in pods"
    with pytest.raises(ConfigError, match="--pods: pods change collectives between servers"):
        values(ranks, "latency", only=(8,), pods=True)
    with pytest.raises(ConfigError, match="--pods"):
        values(placed("star:hosts=1"), "allreduce", only=(8,), ppn=4, pods=True)


def test_a_stream_in_pods_takes_two_network_stacks(placed):
    ranks, tcp = placed("star:hosts=2,speed=100GbE"), Options(network=Network.TCP)
    bare, pods = (values(ranks, "bw", only=(8,), pods=flag, options=tcp).rows[0] for flag in (False, True))
    assert 8 / pods.value - 8 / bare.value == pytest.approx(times().pods.stream_us, rel=0.01)


def test_datagrams_begin_beyond_256_ranks_without_dynamic_connections(placed):
    ranks = placed("fat-tree:hosts=16,server=host-hdr,radix=36")
    bare, datagrams = (values(ranks, "allreduce", only=(8,), ppn=17, ucx_tls=tls).rows[0] for tls in ("", "ud,rc,sm"))
    assert datagrams.value - bare.value == pytest.approx(times().datagrams.rank_us * 272)
    assert datagrams.kind[0] == "collectives over datagrams"


@pytest.mark.parametrize(
    ("ucx_tls", "n_ranks", "datagrams"),
    [
        ("ud,rc,sm", 257, True),
        ("ud_x,rc_mlx5,sm", 512, True),
        ("ud,rc,sm", 256, False),
        ("ud,dc,sm", 512, False),
        ("rc,sm", 512, False),
        ("ib,sm", 512, False),
        ("^dc", 512, True),
        ("^dc,ud", 512, False),
        ("", 512, False),
    ],
)
def test_ucx_takes_datagrams_only_where_nothing_else_scales(ucx_tls, n_ranks, datagrams):
    assert uses_datagrams(ucx_tls, n_ranks) is datagrams


def test_long_messages_over_efa_wait_for_each_window(placed):
    ranks, srd = placed("star:hosts=2,server=host-efa"), times().srd
    sizes = (1, *(n * srd.window_bytes for n in (1, 2, 3)))
    one, first, second, third = (row.value for row in values(ranks, "latency", only=sizes).rows)
    assert first > 3 * one
    assert second - first == pytest.approx(third - second, rel=0.01)
    line_us = srd.window_bytes / 12.2e3  # 100 Gb/s with headers
    assert second - first == pytest.approx(2 * one + line_us, rel=0.05)


def test_programs_have_the_sizes_of_osu():
    sizes = {test.value: (test.min_bytes, test.max_bytes) for test in OsuTest}
    pairs = dict.fromkeys(("latency", "bw", "bibw"), (1, 4 << 20))
    reduces = dict.fromkeys(("allreduce", "reduce"), (4, 1 << 20))
    others = dict.fromkeys(("alltoall", "bcast", "allgather"), (1, 1 << 20))
    assert sizes == pairs | reduces | others | {"barrier": (0, 0)}


def test_a_sample_of_many_rounds_takes_as_long_after_other_steps(placed):
    step = Step(program=tree_broadcast(4, 200), size_bytes=1 << 20)
    costs = messages(placed("star:hosts=4,server=host-hdr"))
    alone = run_steps((step,), costs)
    assert alone.min() > 0
    assert run_steps((step,), costs, np.full(4, 70.0)) == pytest.approx(alone + 70.0)


def test_the_farthest_server_delays_sharp():
    def all_reduce_us(more_us: list[float]) -> np.ndarray:
        interconnect = SimpleNamespace(
            n_servers=3,
            n_ranks=3,
            ppn=1,
            us_per_byte=0.0,
            lone_us=lambda _: 2.0,
            together=lambda *_: SimpleNamespace(more_us=np.array(more_us)),
            levels=lambda: 1,
        )
        return bench._sharp_us(Collective.ALL_REDUCE, interconnect, None, 8)

    assert all_reduce_us([0.5, 1.5]) - all_reduce_us([0.0, 0.0]) == pytest.approx(1.5)
