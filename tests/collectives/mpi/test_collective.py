"""MPI times: all commands use one model."""

import pytest

from weft.collectives.mpi import bench
from weft.collectives.mpi.collective import all_reduce_us
from weft.collectives.mpi.interconnect import FabricInterconnect, IdealInterconnect
from weft.collectives.ranks import place
from weft.fabric import catalog
from weft.fabric.spec import load
from weft.sim.engine import Memory, Network, Options
from weft.sim.perftest import prepare
from weft.training.cabled import cable

SIZES = (8, 4096, 1 << 20)
SPEEDS = {"infiniband": "NDR", "tcp": "100GbE"}


def test_all_commands_have_the_all_reduce_of_weft_osu():
    on = cable(catalog.interconnect("ndr"), 4, seed=1)
    rules = Options(network=Network.INFINIBAND, paths=on.options.paths, memory=Memory.HOST)
    rows = bench.run(on.ranks, bench.Settings(test=bench.Test.ALLREDUCE, only=SIZES, options=rules)).rows
    assert [on.mpi_all_reduce_s(size) * 1e6 for size in SIZES] == pytest.approx([row.value for row in rows])
    assert on.alone().mpi_all_reduce_s(8) == 0.0


@pytest.mark.parametrize("network", ["infiniband", "tcp"])
@pytest.mark.parametrize("servers", [2, 9, 16])
def test_a_network_without_flaws_takes_as_long_as_one_switch(network, servers):
    pair, all_of_them = (
        FabricInterconnect(
            ranks=place(prepare(load(f"star:hosts={hosts},speed={SPEEDS[network]}"))),
            ppn=1,
            options=Options(network=Network(network)),
        )
        for hosts in (2, servers)
    )
    for size in SIZES:
        ideal_us = all_reduce_us(IdealInterconnect(pair=pair, servers=servers), size)
        assert ideal_us == pytest.approx(all_reduce_us(all_of_them, size), rel=0.01)
