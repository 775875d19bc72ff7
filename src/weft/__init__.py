"""weft: a complete InfiniBand fabric in software.

The layers. A module imports only from layers below its own; modules on the same line, or separated by a `|`, do not
import each other. `tests/test_house.py` reads this diagram and enforces it.

    cli                            one module per command; no logic
    scenarios                      demonstrations: each a small program that measures one claim of the documents
    study                          parameter studies: grids of options and seeds, here or on a Ray cluster, one table
    serve | clouds                 REST, our own and UFM's, with roles and a database | OpenStack, CloudStack, Slurm
    jobs                           LIVE JOBS: real programs as ranks on the hosts of a lab, and their rendezvous
    lab                            RUNNING FABRICS: `weft up`, attached programs, cables broken on command
    advise                         do I need InfiniBand: answer, reasons, supporting runs, sensitivity
    compare                        which fabric for this cluster, and why: recable, job, comparison, report
    plan | tenants | monitor       PURCHASE: size, bill, growth | PARTITIONS: intent, drivers | HEALTH: polling
    training                       a job: transformer, parallel, gpu, communication, step; traces/ of other tools
    mpi                            mpi4py's API for ranks, without an MPI library: COMM_WORLD on live/
    collectives                    schedules/ (programs), run; nccl/ and mpi/ (choices, times), live/ (on real memory)
    sim                            TIME: engine, traffic, result (protocol), layout/; analytic, flow/, packet/ (kernels)
    verbs                          HOST: software adapter; pyverbs/, c/ (APIs), hca/ (RC UC UD RD), shm/, carriers/, cm/
    sm                             SUBNET MANAGER: sweep; discovery/, ucast/, mcast/, pkey/, qos/, inform/, sminfo/, sa/
    routing                        forwarding tables as pure functions of a fabric; proofs: reach, deadlock, balance
    draw                           PICTURES of a fabric: scene, layout/; SVG, PNG, HTML; charts of results
    diags                          the tools of infiniband-diags, over any carrier
    mad                            MANAGEMENT PLANE: carriers, agents (SMA, PMA, congestion control), traps, faults
    calibration                    published figures beside weft's: errors, bands, cross-validation
    fabric                         CABLING: model, rates, catalog, tables, forwarding, topologies/, files/
    wire                           BYTES: headers, MADs, CRCs, packets, pcap; knows no fabric
    jit                            kernels, compiled once and cached
    json_lines                     commands to a running process: one line of JSON each way
    runtime                        folders, unix sockets and shared memory that only their owner can reach
    plugins                        registries of topologies, engines, formats and more, for plugins
    web                            the web console's built page, or how to get it
    compiler | user_cache          the user's C compiler | compiled kernels, libraries and programs, cached
    units | ids | version
    errors                         errors: the user's, the fabric's, weft's

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
