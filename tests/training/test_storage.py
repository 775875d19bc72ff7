"""Checkpoints and data: bytes by layout, times by the bottleneck, and their effect on concurrent collectives."""

from dataclasses import replace

import numpy as np
import pytest

from weft.collectives.nccl.measure import pattern_traffic
from weft.collectives.nccl.network import Pattern
from weft.collectives.ranks import place
from weft.errors import ConfigError
from weft.fabric.spec import load
from weft.routing.engine import Options as Routing
from weft.routing.route import route
from weft.sim.engine import Network, Options
from weft.sim.packet.engine import PacketEngine
from weft.training.communication import OverFabric
from weft.training.gpu import Gpu
from weft.training.parallel import Layout
from weft.training.step import run_step
from weft.training.storage import STORAGE_SL, Busy, apart, checkpoint_bytes, copy_s, give_lane, sharing, slowdown
from weft.training.transformer import find

FABRIC = route(load("fat-tree:hosts=10,server=dgx-h100,radix=32")).fabric
RANKS = place(FABRIC, FABRIC.servers[:8])
STORE = sharing(RANKS, FABRIC.servers[8:])  # two servers of two adapters
LAYOUT = Layout(gpus=64, tp=4, global_batch=64, seq=4096)
MODEL = find("llama3-8b")
NDR_GBYTE_S = 49  # payload


@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("llama3-8b", {}),
        ("llama3-8b", {"zero": 0}),
        ("llama3-8b", {"tp": 2, "pp": 4, "zero": 3}),
        ("mixtral-8x7b", {"ep": 8}),
        ("mixtral-8x7b", {"ep": 4, "pp": 2, "zero": 0}),
    ],
)
def test_everything_is_in_the_checkpoint_once(model, given):
    layout, transformer = replace(LAYOUT, **given), find(model)
    sizes = checkpoint_bytes(layout, transformer)
    copied = 1.01  # norms and other undivided parameters are on every rank of a tensor group
    assert 14 * transformer.parameters <= sizes.sum() + len(sizes) * 14 <= 14 * transformer.parameters * copied
    if layout.zero:
        assert (sizes > 0).all()
    elif layout.ep == 1:
        assert np.count_nonzero(sizes) == layout.tp * layout.pp


def test_checkpoint_of_a_16_bit_optimizer_has_6_bytes_for_each_parameter():
    small = checkpoint_bytes(replace(LAYOUT, optimizer_precision="bf16"), MODEL)
    assert small.sum() * 14 == pytest.approx(checkpoint_bytes(LAYOUT, MODEL).sum() * 6, rel=1e-6)


def test_a_checkpoint_takes_as_long_as_the_ports_of_storage_or_its_disks():
    sizes = checkpoint_bytes(LAYOUT, MODEL)
    saved = STORE.write(sizes)
    assert saved.network_s == pytest.approx(sizes.sum() / (4 * NDR_GBYTE_S * 1e9), rel=0.01)
    assert saved.disks_s == pytest.approx(sizes.sum() / (2 * 65e9))
    assert (saved.limit, saved.seconds) == ("disks", saved.disks_s)
    assert STORE.read(sizes).disks_s == pytest.approx(sizes.sum() / (2 * 90e9))
    assert copy_s(sizes) == pytest.approx(sizes.max() / 12.5e9)


def test_a_network_of_its_own_takes_what_its_ports_take():
    own = route(load("fat-tree:hosts=12,speed=100GbE"), Routing(adaptive=True)).fabric
    store = apart(own, RANKS, Options(network=Network.TCP))
    sizes = checkpoint_bytes(LAYOUT, MODEL)
    saved = store.write(sizes)
    assert saved.limit == "network"
    assert saved.network_s == pytest.approx(sizes.sum() / 4 / 12.5e9, rel=0.05)
    with pytest.raises(ConfigError, match="2 more for each storage server"):
        apart(route(load("fat-tree:hosts=9,speed=100GbE"), Routing(adaptive=True)).fabric, RANKS)


def test_a_step_takes_longer_while_a_checkpoint_is_written_on_the_same_fabric():
    """Each adapter of the job gives a 16th of its rate to storage, by fair shares: its ring has the rest."""
    ring = pattern_traffic(RANKS, Pattern.RING)
    least = 1 / (1 - 1 / 16)
    assert least * 0.99 < slowdown(FABRIC, ring, STORE.writes()) < 2
    layout = replace(LAYOUT, overlap_grad_reduce=False)
    alone, beside = (
        run_step(MODEL, layout, Gpu.of("H100"), OverFabric(RANKS, layout, engine=engine))
        for engine in (None, Busy(STORE.writes()))
    )
    assert beside.parts["dp"] > alone.parts["dp"] * 1.04
    assert beside.parts["products"] == alone.parts["products"]


def test_packets_of_a_checkpoint_block_those_of_a_ring_unless_they_have_a_lane():
    """An adapter with one lane waits for credits of the full storage port with its next packet, whatever its
    destination.
    """
    fabric = route(load("fat-tree:hosts=10,server=dgx-h100,radix=32")).fabric
    ring = pattern_traffic(RANKS, Pattern.RING)
    ring = replace(ring, size_bytes=np.full(len(ring), 1 << 19))
    packets = PacketEngine()
    assert slowdown(fabric, ring, STORE.writes(1 << 20), engine=packets) > 5
    give_lane(fabric)
    assert slowdown(fabric, ring, STORE.writes(1 << 20, STORAGE_SL), engine=packets) == pytest.approx(1, abs=0.02)


def test_storage_on_servers_of_the_job_is_refused():
    with pytest.raises(ConfigError, match="dgx8 is a server of the job"):
        sharing(RANKS, ["dgx8", "dgx9"])
