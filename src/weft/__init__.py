"""weft: a complete InfiniBand fabric in software.

The house. A module imports only from layers below its own; modules that share a line, or a `|`, do not know
each other. `tests/test_house.py` reads this diagram and enforces it.

    cli                            one module per command; no logic
    scenarios                      claims of the documents, each a small program with a number
    study                          very many runs: grids of options and seeds, here or on a Ray cluster, one table
    serve | clouds                 REST, our own and UFM's, with roles and a database | OpenStack, CloudStack, Slurm
    jobs                           LIVE JOBS: real programs as ranks on the hosts of a lab, what they tell each other
    lab                            THE RUNNING THING: `weft up`, programs attached to it, cables broken on command
    advise                         do I need InfiniBand: answer, reasons, the runs that show it, when it flips
    compare                        which fabric for this cluster, and why: recable, job, comparison, report
    plan | tenants | monitor       WHAT TO BUY: size, bill, growth | WHO MAY TALK: intent, drivers | IS IT WELL: poll
    training                       a job: transformer, parallel, gpu, communication, step; traces/ of others
    mpi                            mpi4py's words for programs that are ranks, without MPI: COMM_WORLD on live/
    collectives                    who sends what when: program + check, writers, run; NCCL: choose, estimate, bench
    sim                            TIME: engine, traffic, result (protocol), layout/; analytic, flow/, packet/ (kernels)
    verbs                          HOST: software adapter; pyverbs/, c/ (APIs), hca/ (RC UC UD RD), shm/, carriers/, cm/
    sm                             SUBNET MANAGER: sweep; discovery/, ucast/, mcast/, pkey/, qos/, inform/, sminfo/, sa/
    routing                        forwarding tables as pure functions of a fabric; proofs: reach, deadlock, balance
    draw                           PICTURES of a fabric: scene, layout/; SVG, PNG, HTML; charts of results
    diags                          the tools of infiniband-diags, over any carrier
    mad                            MANAGEMENT PLANE: carriers, agents (SMA, PMA, congestion control), traps, faults
    fabric                         CABLING: model, rates, catalog, tables, forwarding, topologies/, files/
    wire                           BYTES: headers, MADs, CRCs, packets, pcap; knows no fabric
    jit                            kernels, compiled once and cached
    json_lines                     commands to a process that runs: one line of JSON each way
    runtime                        what other processes can reach: folders, unix sockets, memory; their owner's alone
    plugins                        doors: topologies, engines, formats and more that others add, by name
    web                            the console's page, as it was built; or how to get it
    compiler | kept                the user's C compiler | what is made on first use, and kept while somebody uses it
    units | ids | version
    errors                         you, the fabric, or us

The same fabric from Python:

    import weft
    fabric = weft.load("superpod:su=1")     # or "fat-tree:hosts=1024,switch=QM9700", or the path of a file
    print(fabric["leaf3/17"].peer)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.version import __version__ as __version__

if TYPE_CHECKING:
    from weft.fabric.model import Fabric as Fabric
    from weft.fabric.spec import load as load

__all__ = ["Fabric", "load"]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> object:
    """Load the two public names on first use, so that `import weft` costs no numpy."""
    if name == "load":
        from weft.fabric.spec import load

        return load
    if name == "Fabric":
        from weft.fabric.model import Fabric

        return Fabric
    raise AttributeError(f"module 'weft' has no attribute {name!r}")
