"""ibdmchk, and its proof as a script for ibdmsh, the shell of the same package.

The script makes the same proof, for one virtual lane only. It leaves out a histogram, past whose end ibdmchk writes if
a switch has fifty ports equally near to a host, as in the NDR fabric, and the min-hop tables for that histogram, which
take half of the time on Selene.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from itertools import compress, cycle
from pathlib import Path

import numpy as np
from tests.patience import PATIENCE_S

from weft.fabric.files import opensm as files
from weft.fabric.files.atomic import write_atomically
from weft.fabric.files.opensm_vls import write_vls
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.routing.check import TableCheck
from weft.routing.graph import switch_graph
from weft.routing.orientation import hops_from

_MOST_EQUAL_PORTS = 50  # to a host: ibdmchk crashes with more; the NDR fabric has 62


def proof(subnet: Path, routes: Path, *, switches: bool = False) -> str:
    """Return the script that proves that all paths of hosts (optionally of switches) arrive, without a credit loop."""
    lines = [
        "set fabric [new_IBFabric]",
        f"IBFabric_parseSubnetLinks $fabric {subnet}",
        f"IBFabric_parseFdbFile $fabric {routes}",
        "ibdmVerifyCAtoCARoutes $fabric",
        *(["ibdmVerifyAllPaths $fabric", "ibdmSetCreditLoopAnalysisMode 1 0"] if switches else []),
        "ibdmAnalyzeLoops $fabric\n",
    ]
    return "\n".join(lines)


def routes_to_shown(routes: str, subnet: str) -> str:
    """Drop routes to LIDs that are not in the subnet: reading them is most of ibdm's time on Selene. For LMC 0.

    All switches have routes to the same LIDs.
    """
    output = {f"0x{lid}" for lid in re.findall(r" LID:(\w{4}) ", subnet)}
    lines = routes.splitlines(keepends=True)
    of_a_switch = lines[: len(lines) // routes.count("dump_ucast_routes")]
    return "".join(compress(lines, cycle([line[:6] in output or line[:2] != "0x" for line in of_a_switch])))


def ports_to_shown(fabric: Fabric) -> str:
    """Return the part of opensm.fdbs that ibdm reads: the ports to the LIDs of the fabric. For LMC 0."""
    tables = fabric.tables
    lids = np.flatnonzero(np.bincount(tables.lid[tables.lid > 0]))
    heads = [f"0x{lid:04X} : " for lid in lids]
    ports = [f"{port:03d}  : 00   : yes\n" for port in range(NO_ROUTE)] + ["UNREACHABLE\n"]
    parts = []
    for switch in fabric.switches:
        parts.append(f"dump_ucast_routes: Switch 0x{int(switch.guid):016x}\nLID    : Port : Hops : Optimal\n")
        row = tables.lft[tables.switch_row[switch.index], lids].tolist()
        parts += [head + ports[port] for head, port in zip(heads, row, strict=True)]
    return "".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class IbdmReport:
    """The results of a run of ibdmchk."""

    paths: int
    missing: int
    all_paths: int  # including those of switches; 0 if not requested
    hops: dict[int, int]  # links between switches -> pairs
    credit_loop: bool | None  # None if paths are missing: then ibdmchk does not check
    lanes: int  # highest VL in use, plus one
    text: str


def read_report(text: str) -> IbdmReport:
    scanned, missing = re.search(r"-I- Scanned:(\d+) CA to CA", text), re.search(r"Found (\d+) missing.*:(\d+)", text)
    assert scanned or missing, text[-2000:]
    histogram = text.partition("LFT ROUTE HOP HISTOGRAM")[2].partition("NUM-CA-CA-PAIRS\n")[2].partition("---")[0]
    hops = [tuple(map(int, line.split())) for line in histogram.splitlines()]
    with_switches = re.search(r"-I- Scanned:(\d+) paths", text)
    lanes = re.search(r"Analyzing Fabric for Credit Loops \d+ SLs, (\d+) VLs used", text)
    no_loop = "-I- no credit loops found" in text  # ibdmsh crashes after that line and then prints the opposite
    assert missing or no_loop or "-E- credit loops in routing" in text, text[-2000:]
    return IbdmReport(
        paths=int(missing[2]) if missing else int(scanned[1]) if scanned else 0,
        missing=int(missing[1]) if missing else 0,
        all_paths=int(with_switches[1]) if with_switches else 0,
        hops={count - 2: pairs for count, pairs in hops},  # ibdmchk also counts the links of the two adapters
        credit_loop=None if missing else not no_loop,
        lanes=int(lanes[1]) if lanes else 0,
        text=text,
    )


class Ibdm:
    """The programs ibdmchk and ibdmsh."""

    def __init__(self, ibdmchk: str, ibdmsh: str, folder: Path) -> None:
        self.ibdmchk, self.ibdmsh, self.folder = ibdmchk, ibdmsh, folder

    def check(
        self, fabric: Fabric, *, lanes: bool | None = None, switches: bool = False, shell: bool = False
    ) -> IbdmReport:
        """Check the tables, with `lanes` if they use any; by ibdmsh for `shell`, or if ibdmchk would crash."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            write_atomically(folder / "subnet", files.subnet_lst_text(fabric))
            write_atomically(folder / "routes", ports_to_shown(fabric) if shell else files.fdbs_text(fabric))
            write_atomically(folder / "groups", "")
            if shell or most_equal_ports(fabric) >= _MOST_EQUAL_PORTS:
                assert "sl2vl" not in vars(fabric.tables), "this script checks one lane"
                write_atomically(folder / "script", proof(folder / "subnet", folder / "routes", switches=switches))
                return self.run(folder, self.ibdmsh, "script")
            options = ["-s", "subnet", "-f", "routes", "-m", "groups", "-l", str(fabric.tables.lmc.max())]
            if lanes or (lanes is None and "sl2vl" in vars(fabric.tables)):
                write_vls(fabric, folder)
                options += ["-c", "opensm.psl", "-d", "opensm.slvl"]
            return self.run(folder, self.ibdmchk, *options, *(["-a"] if switches else []))

    def run(self, folder: Path, *command: str) -> IbdmReport:
        done = subprocess.run(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return read_report(done.stdout)


def most_equal_ports(fabric: Fabric) -> int:
    """Return the maximum number of ports of a switch on shortest paths to the same host."""
    if fabric.nodes.n_ports.max() < _MOST_EQUAL_PORTS:
        return 0
    graph = switch_graph(fabric, fabric.tables.lid, fabric.tables.lmc)
    most = 0
    for target in np.unique(graph.at[graph.out > 0]):
        hops = hops_from(graph, int(target))
        most = max(most, int(np.bincount(graph.near[hops[graph.far] < hops[graph.near]]).max(initial=0)))
    return most


def assert_agree(verdict: TableCheck, report: IbdmReport) -> None:
    """Assert that weft and ibdmchk found the same paths and agree on credit loops."""
    assert (verdict.pairs, verdict.missing) == (report.paths, report.missing)
    assert verdict.hops == report.hops
    if report.credit_loop is not None:
        assert bool(verdict.credit_loop) == report.credit_loop, verdict.explain()
