"""Ask a library of NCCL for its choices, function by function: the files nccl_2_31_2.txt and later beside this.

    pip download --no-deps nvidia-nccl-cu13==2.32.3 && unzip *.whl
    cd tests/collectives/nccl && python ask_nccl.py ../../../nvidia/nccl/lib/libnccl.so.2 2.32.3 > nccl_2_32_3.txt

Neither GPU nor driver is needed: NVIDIA's library has names (nm) and the layout of its structures (gdb). Functions are
called on a communicator of zeros with those fields set that they read, and on topology files of weft's servers. For
2.31 and later; before, the tuner had other functions, and the source is public.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import weft
from weft.collectives.nccl.cluster import Cluster, Processor, from_server
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.graphs import NONE, Graph, Graphs
from weft.fabric.files.nccl_topology import to_text

os.environ["NCCL_IGNORE_DISABLED_P2P"] = "2"  # else the driver is asked about peers
FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
SIZES = (8, 65536, 4 << 20, 256 << 20, 8 << 30)
SYMMETRIC_SIZES = (4096, 65536, 1 << 20, 16 << 20, 256 << 20, 8 << 30, 288_000)
EVERY_KERNEL_SIZES = (65536, 16 << 20, 8 << 30)
SYMMETRIC = ((90, 8, 1), (90, 2, 1), (100, 8, 1), (100, 4, 1), (103, 72, 1), (90, 8, 4), (100, 8, 2))  # sm, GPUs, nodes
ROWS = len(ALGORITHMS) * len(PROTOCOLS)
PATTERNS = {
    "ring": (0, 4, 0),
    "tree": (1, 1, 0),
    "chain": (2, 3, 1),
    "direct": (4, 6, 1),
    "nvls": (3, 5, 0),
}  # id, ., SHARP
GRAPHS = ("tree", "ring", "direct", "chain", "nvls", "nvls", "tree")  # the graph of each algorithm
TREE, NVS, FLOAT, BOTH_IN_WINDOWS = 3, 2, 7, 3  # numbers of NCCL's
UNSET = -(1 << 31)
SHARED_MEMORY = 232_448  # bytes per block, Blackwell
STRUCTS = (
    *("ncclComm", "ncclTuningInput_t", "ncclTuningResult_t", "ncclTopoGraph", "ncclTopoSystem", "ncclTopoNodeSet"),
    *("ncclChannel", "ncclPeerInfo", "ncclNvlsSharedRes", "ncclXml", "ncclXmlNode", "ncclNodeRanks"),
)
SPEEDS = {12: "8.0", 24: "16.0", 48: "32.0", 96: "64.0"}  # PCIe, by NCCL's count of Gbyte/s
Layout = dict[str, tuple[int, int]]  # field -> offset, size


class Library:
    def __init__(self, path: str) -> None:
        loaded = ctypes.CDLL(path)
        self.symbols: dict[str, int] = {}
        for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
            address, _, name = line.rpartition(" ")
            if address.split(" ")[0]:
                self.symbols.setdefault(name, int(address.split(" ")[0], 16))
        self.base = (ctypes.cast(loaded.ncclGetVersion, ctypes.c_void_p).value or 0) - self.symbols["ncclGetVersion"]
        requests = [
            "set max-value-size unlimited",
            *(f"ptype /o struct {item}" for item in STRUCTS),
            "ptype /o ncclConfig_t",
        ]
        words = [word for item in requests for word in ("-ex", item)]
        messages = subprocess.run(
            ["gdb", "-nx", "-batch", *words, path], capture_output=True, text=True, check=True
        ).stdout
        parts = re.split(r"^(?:/\* offset .* )?type = ", messages, flags=re.MULTILINE)[1:]
        self.layouts = dict(zip((*STRUCTS, "ncclConfig_t"), map(_layout, parts), strict=True))
        totals = (int(re.findall(r"total size \(bytes\): +(\d+)", item)[-1]) for item in parts)
        self.sizes = dict(zip(self.layouts, totals, strict=True))

    def address(self, name: str) -> int:
        """Return the address of a function by the beginning of its mangled C++ name."""
        mangled = f"_Z{len(name)}{name}"
        return self.base + next(at for item, at in self.symbols.items() if item.startswith(mangled))

    def call(self, function: str, *arguments: int | bytes | None) -> int:
        kinds = [ctypes.c_char_p if isinstance(argument, bytes) else ctypes.c_void_p for argument in arguments]
        return int(ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(self.address(function))(*arguments))

    def must(self, function: str, *arguments: int | bytes | None) -> None:
        result = self.call(function, *arguments)
        assert result == 0, f"{function} says {result}"

    def kernels(self) -> list[str]:
        """Return the names of the symmetric kernels: an array of strings."""
        count = constants().symmetric.kernels
        array = (ctypes.c_char_p * len(count)).from_address(self.base + self.symbols["_ZL16ncclSymKernelStr"])
        return [(item or b"").decode() for item in array]


def _layout(text: str) -> Layout:
    """Return the fields of a structure, those of nested structures by dotted names."""
    fields: Layout = {}
    inside: list[tuple[int, int, list[tuple[str, int, int]]]] = []
    for line in text.splitlines()[1:]:
        field = re.match(r"/\*\s+(\d+)\s*\|\s*(\d+) \*/\s+(.*?)\s*$", line)
        end = re.match(r"\s+\} (\w+)(\[.*\])?;$", line)
        result: list[tuple[str, int, int]] = []
        if field and field[3].endswith("{"):
            inside.append((int(field[1]), int(field[2]), []))
        elif field and (name := re.search(r"(\w+)(\[.*\])?;$", field[3])):
            result = [(name[1], int(field[1]), int(field[2]))]
        elif end and inside:
            at, size, below = inside.pop()
            result = [(end[1], at, size), *((f"{end[1]}.{name}", at, size) for name, at, size in below)]
        for name, at, size in result:
            if inside:
                inside[-1][2].append((name, at, size))
            else:
                fields.setdefault(name, (at, size))
    return fields


class Record:
    """A structure in memory, initialized with zeros."""

    def __init__(self, library: Library, kind: str, count: int = 1) -> None:
        self.fields, self.size = library.layouts[kind], library.sizes[kind]
        self.memory = ctypes.create_string_buffer(self.size * count)
        self.at = ctypes.addressof(self.memory)
        self.kept: list[object] = []

    def set(self, field: str, value: float, form: str = "i", more: int = 0) -> None:
        struct.pack_into(f"<{form}", self.memory, self.fields[field][0] + more, value)

    def get(self, field: str, form: str = "i", more: int = 0) -> float:
        return float(struct.unpack_from(f"<{form}", self.memory, self.fields[field][0] + more)[0])

    def point(self, field: str, to: ctypes.Array[ctypes.c_char]) -> None:
        self.kept.append(to)
        self.set(field, ctypes.addressof(to), "Q")


# -- the search -------------------------------------------------------------------------------------------------------


def search(library: Library, topology: str, cluster: Cluster) -> dict[str, Record]:
    xml = ctypes.create_string_buffer(library.sizes["ncclXml"] + library.sizes["ncclXmlNode"] * 1500)
    struct.pack_into("<ii", xml, 0, 0, 1500)
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(topology)
        file.flush()
        library.must("ncclTopoGetXmlFromFile", file.name.encode(), ctypes.addressof(xml), 1)
    system = ctypes.c_void_p()
    library.must("ncclTopoGetSystemFromXml", ctypes.addressof(xml), ctypes.addressof(system), 0)
    at = system.value or 0
    layout = library.layouts["ncclTopoSystem"]
    ctypes.c_int.from_address(at + layout["inter"][0]).value = int(cluster.nodes > 1)
    if "cuMemGdrSupport" in layout:
        ctypes.c_bool.from_address(at + layout["cuMemGdrSupport"][0]).value = True
    library.must("ncclTopoComputePaths", at, None)
    library.must("ncclTopoSearchInit", at)
    result: dict[str, Record] = {}
    nvls = cluster.nvls and cluster.nvswitch and cluster.sm >= 90 and cluster.gpus > 1
    for name, (number, pattern, sharp) in PATTERNS.items():
        if (sharp and not cluster.sharp) or (name == "nvls" and not nvls):
            continue
        graph = Record(library, "ncclTopoGraph")
        ring = int(result["ring"].get("nChannels")) if name in ("tree", "chain") else 0
        bounds = {"minChannels": ring or 1, "maxChannels": ring or (32 if name == "ring" else 64)}
        for field, value in ({"id": number, "pattern": pattern, "collNet": sharp} | bounds).items():
            graph.set(field, value)
        library.must("ncclTopoCompute", at, graph.at)
        result[name] = graph
    ctypes.CDLL(None).free(system)
    return result


def as_graphs(found: dict[str, Record]) -> Graphs:
    result = {}
    for name, item in found.items():
        speeds = (round(item.get(field, "f"), 3) for field in ("bwIntra", "bwInter"))
        result[name] = Graph(int(item.get("nChannels")), *speeds)
    return Graphs(
        ring=result["ring"],
        tree=result["tree"],
        collnet_chain=result.get("chain", NONE),
        collnet_direct=result.get("direct", NONE),
        nvls=result.get("nvls", NONE),
        same_channels=bool(found["ring"].get("sameChannels")),
        simple_tree=found["tree"].get("pattern") == TREE,
    )


@cache
def server_topology(name: str) -> str:
    fabric = weft.load(f"star:hosts=2,server={name}")
    rails_only = re.sub(r"<net (?:(?!rail=)[^>])*/>", "", to_text(fabric, fabric.servers[0]))
    return rails_only.replace("<net ", '<net coll="1" plane="-1" ')


def made_topology(cluster: Cluster) -> str:
    """Return a topology: two GPUs below each PCIe switch, adapters spread over them, half below each processor."""
    speed = f'link_speed="{SPEEDS[round(cluster.slot_gbyte_s)]} GT/s PCIe" link_width="16"'
    vendor, family, model, arch = {
        Processor.INTEL: ("GenuineIntel", 6, 207, "x86_64"),
        Processor.AMD: ("AuthenticAMD", 25, 17, "x86_64"),
        Processor.ARM: ("ARM", 0, 0, "arm64"),
    }[cluster.processor]
    links = constants().of_sm(cluster.sm).nvlinks if cluster.gpus > 1 else 0
    switches = max(1, cluster.gpus // 2)
    cpus = min(2, switches)
    nvlink = f'<nvlink target="ffff:ff:01.0" count="{links}" tclass="0x068000"/>' if links else ""
    lines = ['<system version="1">']
    for cpu in range(cpus):
        lines.append(f'<cpu host_hash="0x0" numaid="{cpu}" arch="{arch}" vendor="{vendor}"')
        lines.append(f' familyid="{family}" modelid="{model}">')
        for switch in (item for item in range(switches) if item * cpus // switches == cpu):
            lines.append(f'<pci busid="0000:{switch + 1:02x}:00.0" class="0x060400" {speed}>')
            for gpu in (item for item in range(cluster.gpus) if min(item // 2, switches - 1) == switch):
                lines.append(f'<pci busid="0000:{switch + 1:02x}:{1 + gpu:02x}.0" class="0x030200" {speed}>')
                lines.append(f'<gpu dev="{gpu}" sm="{cluster.sm}" rank="{gpu}" gdr="1">{nvlink}</gpu></pci>')
            for nic in (item for item in range(cluster.nics) if item * switches // cluster.nics == switch):
                lines.append(f'<pci busid="0000:{switch + 1:02x}:{64 + nic:02x}.0" class="0x020700" {speed}><nic>')
                lines.append(f'<net name="mlx5_{nic}" dev="{nic}" speed="{cluster.nic_gbit_s * 1000:.0f}" port="1"')
                lines.append(f' latency="0.000000" guid="{nic + 1:#x}" maxconn="131072" gdr="1" coll="1" rail="{nic}"')
                lines.append(' plane="-1"/></nic></pci>')
            lines.append("</pci>")
        lines.append("</cpu>")
    return "".join([*lines, "</system>\n"])


# -- the communicator -------------------------------------------------------------------------------------------------


class Communicator(Record):
    def __init__(self, library: Library, cluster: Cluster, found: dict[str, Record]) -> None:
        super().__init__(library, "ncclComm")
        self.library, self.cluster, graphs = library, cluster, as_graphs(found)
        for number, name in enumerate(GRAPHS):
            if name in found:
                at = self.fields["graphs"][0] + number * library.sizes["ncclTopoGraph"]
                ctypes.memmove(self.at + at, found[name].at, library.sizes["ncclTopoGraph"])
        arm, amd = cluster.processor == Processor.ARM, cluster.processor == Processor.AMD
        heads = graphs.nvls.channels
        values = {"nRanks": cluster.ranks, "nNodes": cluster.nodes, "rank": 1, "intraRanks": 1, "symmetricSupport": 1}
        values |= dict.fromkeys(("localRanks", "minLocalRanks", "maxLocalRanks"), cluster.gpus)
        values |= dict.fromkeys(("compCap", "minCompCap", "maxCompCap"), cluster.sm)
        values |= dict.fromkeys(("nChannels", "collChannels"), graphs.channels(cluster))
        values |= {"cudaArch": cluster.sm * 10, "cpuArch": 3 if arm else 1, "cpuVendor": 2 if amd else 1}
        values |= {"maxTreePattern": int(found["tree"].get("pattern")), "nvlsSupport": int(heads > 0)}
        values |= {"collNetChainSupport": 1, "collNetHeadsNum": min(cluster.gpus, max(cluster.nics, 1))}
        for field, value in values.items():
            self.set(field, value)
        if "maxSharedMemOptin" in self.fields:
            self.set("maxSharedMemOptin", SHARED_MEMORY)
        for field in ("minNetBw", "minLocalNetBw"):
            self.set(field, cluster.nic_gbyte_s, "f")
        self.set("isOneRPN", int(cluster.gpus == 1), "B")
        self._config()
        self._pointers()
        self._symmetric(heads)
        channel = library.layouts["ncclChannel"]
        self.set("channels", min(cluster.gpus, cluster.nics), more=channel["collnetDirect.nHeads"][0])
        self.set("channels", heads, more=channel["nvls.nHeads"][0])
        size = self.fields["tuningContext.tuningConstants"][1]
        defaults = library.base + library.symbols["_ZL26ncclTunerConstantsDefaults"]
        ctypes.memmove(self.at + self.fields["tuningContext.tuningConstants"][0], defaults, size)
        if heads:
            library.must("ncclNvlsTuning", self.at)
        library.must("ncclTuningCostModelInit", self.at)
        library.must("ncclTuningSetThreadThresholds", self.at)

    def _config(self) -> None:
        config, cluster = self.library.layouts["ncclConfig_t"], self.cluster
        values = {"minCTAs": cluster.min_ctas, "maxCTAs": cluster.max_ctas, "collnetEnable": int(cluster.sharp)}
        for field, value in (values | {"nvlsCTAs": UNSET}).items():
            self.set("config", value, more=config[field][0])

    def _pointers(self) -> None:
        library, cluster = self.library, self.cluster
        topology = ctypes.create_string_buffer(library.sizes["ncclTopoSystem"])
        at = library.layouts["ncclTopoSystem"]["nodes"][0] + NVS * library.sizes["ncclTopoNodeSet"]
        struct.pack_into("<i", topology, at, int(cluster.nvswitch))
        self.point("topo", topology)
        if cluster.sharp:
            self.point("ncclCollNet", ctypes.create_string_buffer(b"\1" * 1024))
        nodes, ranks = Record(library, "ncclNodeRanks", cluster.nodes), Record(library, "ncclPeerInfo", cluster.ranks)
        for node in range(cluster.nodes):
            nodes.set("localRanks", cluster.gpus, more=node * nodes.size)
        for rank in range(cluster.ranks):
            ranks.set("hostHash", 1 + rank // cluster.gpus, "Q", more=rank * ranks.size)
        self.point("nodeRanks", nodes.memory)
        self.point("peerInfo", ranks.memory)
        node_of = struct.pack(f"<{cluster.ranks}i", *(rank // cluster.gpus for rank in range(cluster.ranks)))
        self.point("rankToNode", ctypes.create_string_buffer(node_of))
        nvls = Record(library, "ncclNvlsSharedRes")
        nvls.set("nHeads", cluster.gpus)
        self.point("nvlsResources", nvls.memory)

    def _symmetric(self, heads: int) -> None:
        cluster = self.cluster
        self.set("devrState.lsaSize", cluster.gpus)
        self.set("devrState.nLsaTeams", cluster.nodes)
        self.set("devrState.bigSize", 1 << 32, "Q")  # windows have been made
        self.set("symkState.initialized", 1, "B")
        self.set("symkState.hasLsaMultimem", int(heads > 0 and cluster.gpus > 2), "B")
        self.set("symkState.maxGinInboxBlocks", 64)
        self.set("isAllDirectNvlink", 1, "B")

    def rows(self, function: str) -> Iterator[str]:
        number = FUNCTIONS.index(function)
        for row in range(ROWS):
            name = f"{ALGORITHMS[row // 3]} {PROTOCOLS[row % 3]}"
            on = self.get("tuningContext.enabled", more=4 * (row * len(FUNCTIONS) + number))
            us, gbyte_s = (
                self.get(f"tuningContext.general{kind}", "f", 4 * (number * ROWS + row))
                for kind in ("Latencies", "Bandwidths")
            )
            # PAT on several GPUs of a node has a row, and is never taken unless NCCL_ALGO asks for it.
            if on and gbyte_s != -1 and not (name.startswith("PAT") and self.cluster.gpus > 1):
                yield f"table {function} {name} {us:g} {gbyte_s:g}"

    def compute(self, function: str, size_bytes: int, mask: int, part_bytes: int = 0) -> Record:
        """Compute NCCL's tuning; `part_bytes`: the requested size before it is rounded up to cells."""
        requests, messages = Record(self.library, "ncclTuningInput_t"), Record(self.library, "ncclTuningResult_t")
        words = {"func": FUNCTIONS.index(function), "datatype": FLOAT, "numPipeOps": 1, "nWorks": 1}
        words |= {"winRegType": BOTH_IN_WINDOWS if part_bytes else 0, "collNetSupport": int(self.cluster.sharp)}
        words |= {"nvlsSupport": int(self.get("nvlsSupport"))}
        words |= {"minCTAs": self.cluster.min_ctas, "maxCTAs": self.cluster.max_ctas}
        for field, value in words.items():
            requests.set(field, value)
        large = {"comm": self.at, "tuningMask": mask, "nBytes": size_bytes, "countMax": size_bytes // 4}
        for field, value in (large | {"count": (part_bytes or size_bytes) // 4}).items():
            requests.set(field, value, "Q")
        requests.set("symAligned16B", 1, "B")
        self.library.call(
            "ncclTuningCompute", requests.at, messages.at
        )  # that there is no kernel at all is an error of its
        return messages


# -- what is written --------------------------------------------------------------------------------------------------


def case(library: Library, words: list[str]) -> Iterator[str]:
    name, nodes, sharp, nvls = words
    if ":" in name:
        sm, gpus, nics, gbit_s, processor = name.split(":")
        counts = {"sm": int(sm), "gpus": int(gpus), "nodes": int(nodes), "nics": int(nics), "nic_gbit_s": int(gbit_s)}
        cluster = Cluster(**counts, processor=Processor(processor), sharp=sharp == "1", nvls=nvls == "1")
    else:
        cluster = from_server(name, nodes=int(nodes), sharp=sharp == "1", nvls=nvls == "1")
    topology = made_topology(cluster) if ":" in name else server_topology(name)
    if cluster.nodes == 1:
        topology = re.sub(r"<net [^>]*/>", "", topology)
    result = search(library, topology, cluster)
    created = Communicator(library, cluster, result)
    yield f"case {' '.join(words)}"
    for kind, item in result.items():
        if item.get("nChannels"):
            speeds = " ".join(f"{round(item.get(field, 'f'), 3):g}" for field in ("bwIntra", "bwInter"))
            yield f"graph {kind} {item.get('nChannels'):.0f} {speeds}"
    yield f"channels {created.get('nChannels'):.0f} {created.get('nvlsChannels'):.0f}"
    for function in ("Broadcast", "AllGather", "AllReduce"):
        yield from created.rows(function)
    for function in ("Broadcast", "AllGather", "AllReduce"):
        for size_bytes in SIZES:
            messages = created.compute(function, size_bytes, (1 << ROWS) - 1)
            names = f"{ALGORITHMS[int(messages.get('algo'))]} {PROTOCOLS[int(messages.get('proto'))]}"
            counts_told = f"{messages.get('nChannels'):.0f} {messages.get('nWarps'):.0f}"
            yield f"choice {function} {size_bytes} {names} {messages.get('timeUs', 'f'):g} {counts_told}"


def symmetric(library: Library, sm: int, gpus: int, nodes: int) -> Iterator[str]:
    cluster = Cluster(sm=sm, gpus=gpus, nodes=nodes, nics=gpus, nic_gbit_s=400)
    topology = made_topology(cluster if nodes > 1 else replace(cluster, nics=0))
    result = Communicator(library, cluster, search(library, topology, cluster))
    names = library.kernels()
    for function in ("AllReduce", "AllGather", "ReduceScatter"):
        for symmetric_size in SYMMETRIC_SIZES:
            share = 1 if function == "AllReduce" else cluster.ranks
            part_bytes = max(4, symmetric_size // share // 4 * 4)
            cells_bytes = -(-part_bytes // 1024) * 1024
            where = f"{sm}:{gpus}:{nodes} {function} {part_bytes * share}"
            every = ((1 << len(names)) - 1) << ROWS
            kernel = _kernel(result.compute(function, cells_bytes, every, part_bytes), names)
            yield f"pick {where} {kernel or 'none 0 0'}"
            if nodes > 1 or symmetric_size not in EVERY_KERNEL_SIZES:
                continue
            for number, name in enumerate(names):
                if name.startswith(function):
                    messages = result.compute(function, cells_bytes, 1 << (ROWS + number), part_bytes)
                    yield f"kernel {where} {_kernel(messages, names) or f'{name} 0 0'}"


def _kernel(told: Record, names: list[str]) -> str:
    number = int(told.get("symKernelId"))
    if number >= len(names):
        return ""
    us = told.get("selectionTimeUs" if "selectionTimeUs" in told.fields else "timeUs", "f")
    if "RailRing" in names[number]:
        us *= 1e6  # NCCL has this one in seconds
    return f"{names[number]} {us:g} {told.get('nChannels'):.0f}"


def main(path: str, version: str) -> None:
    library = Library(path)
    print(f"# What NCCL {version} itself says: {Path(__file__).name} asked libnccl.so.2 of NVIDIA's wheel.")
    print(HEAD, end="")
    judged = Path(__file__).with_name("nccl_2_30_7.txt").read_text(encoding="utf-8").splitlines()
    for line in judged:
        if line.startswith("case "):
            print("\n".join(case(library, line.split()[1:])))
    for machine in SYMMETRIC:
        print("\n".join(symmetric(library, *machine)))


HEAD = """\
#   case     server or sm:gpus:nics:Gbit/s:processor, nodes, SHARP, NVLS
#   graph    pattern, channels, Gbyte/s of one inside and between nodes
#   channels of the communicator, by the rules of src/graph/connect.cc, and of NVLS
#   table    collective, algorithm, protocol, latency in us, Gbyte/s; absent where NCCL would not take it
#   choice   collective, bytes, algorithm, protocol, us, channels, warps
#   pick     sm:gpus:nodes, collective, bytes, symmetric kernel, us times its penalty, blocks; or none
#   kernel   likewise of one kernel; 0 0 where NCCL would not take it
"""

if __name__ == "__main__":
    main(*sys.argv[1:])
