"""Server templates from nvidia-smi's matrix and NCCL's XML, and back."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError, FileError
from weft.fabric import catalog
from weft.fabric.build import FabricBuilder
from weft.fabric.files import nccl_topology
from weft.fabric.files.machine import MachineHints, to_yaml
from weft.fabric.kinds import NodeKind
from weft.fabric.servers import add_servers

H100 = MachineHints(gpu="H100", adapter="ConnectX-7")
MATRIX = """\
\x1b[4m\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tNODE\tPIX\tSYS\t0-55,112-167\t0\t\tN/A
GPU1\tNV18\t X \tPXB\tNODE\tSYS\t0-55,112-167\t0\t\tN/A
NIC0\tNODE\tPXB\t X \tNODE\tSYS\t\t\t\t
NIC1\tPIX\tNODE\tNODE\t X \tSYS\t\t\t\t
NIC2\tSYS\tSYS\tSYS\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
  NIC2: mlx5_bond_0
"""
XML = """\
<system version="1">
  <cpu host_hash="0x1" numaid="1" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">
    <pci busid="0000:61:00.0" class="0x020700" vendor="0x15b3" device="0x101b">
      <nic>
        <net name="mlx5_4" dev="4" speed="200000" port="1"/>
        <net name="mlx5_5" dev="5" speed="100000" port="2"/>
      </nic>
    </pci>
  </cpu>
  <cpu host_hash="0x1" numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:03:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
        <pci busid="0000:07:00.0" class="0x030200" vendor="0x10de" device="0x20b2">
          <gpu dev="0" sm="80" rank="0" gdr="1">
            <nvlink target="0000:c4:00.0" count="6" tclass="0x068000"/>
            <nvlink target="0000:c5:00.0" count="6" tclass="0x068000"/>
          </gpu>
        </pci>
        <pci busid="0000:0f:00.0" class="0x030200" vendor="0x10de" device="0x20b2">
          <gpu dev="3" sm="80" rank="1" gdr="1">
            <nvlink target="0000:c5:00.0" count="6" tclass="0x068000"/>
            <nvlink target="0000:c4:00.0" count="6" tclass="0x068000"/>
          </gpu>
        </pci>
      </pci>
      <pci busid="0000:0c:00.0" class="0x020700" vendor="0x15b3" device="0x101b" link_speed="16.0 GT/s" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
"""


def template(path: Path, text: str, known: MachineHints | None = None) -> catalog.Server:
    """Return the template of a text, read from a file by its path as users do."""
    arguments, result = path / "given", path / "made.yaml"
    arguments.write_text(text)
    result.write_text(to_yaml(arguments, known))
    return catalog.server(str(result))


def test_a_matrix_of_nvidia_smi(tmp_path: Path) -> None:
    """Rails are in the order of GPUs, not of adapters; adapters without a shared switch are for storage."""
    result = template(tmp_path, MATRIX, H100)
    assert (result.gpus, result.nvlink_spread, result.cpus, result.pcie) == (2, (18,), 2, "16xPCIe5")
    assert (result.compute, result.storage) == (("mlx5_1", "mlx5_0"), ("mlx5_bond_0",))
    assert result.pcie_tree == {
        "cpu0": ("pcie0", "pcie1"),
        "cpu1": ("mlx5_bond_0",),
        "pcie0": ("gpu0", "mlx5_1"),
        "pcie1": ("gpu1", "mlx5_0"),
    }
    alone = MATRIX.replace("NODE", "SYS")  # as some machines say it: only NUMA domains tell of one processor
    assert template(tmp_path, alone, H100).pcie_tree["cpu0"] == ("pcie0", "pcie1")
    older = MATRIX.partition("NIC Legend")[0]
    for number in range(3):
        older = older.replace(f"NIC{number}", f"mlx5_{number}")
    assert template(tmp_path, older, H100).compute == ("mlx5_1", "mlx5_0")


def test_a_matrix_as_it_comes_out_of_terminals(tmp_path: Path) -> None:
    """The text has the prompt, Windows line ends and trailing blanks, and omissions and spellings of some drivers."""
    plain = template(tmp_path, MATRIX, H100)
    for text in (
        f"$ nvidia-smi topo -m\n{MATRIX}",
        MATRIX.replace("\n", "\r\n"),
        MATRIX.replace("\n", " \t \n"),
        MATRIX.replace("\t0\t\tN/A", "\t0-1\t\tN/A"),
        MATRIX.replace("0-55,112-167\t0\t\tN/A", "\tN/A\t\tN/A"),  # the rows of NICs tell of one processor too
    ):
        result = template(tmp_path, text, H100)
        assert (result.compute, result.pcie_tree) == (plain.compute, plain.pcie_tree)


def test_a_dump_of_nccl(tmp_path: Path) -> None:
    """GPUs and cards by their PCI ids, two ports of a card as two functions, cascaded switches as one."""
    result = template(tmp_path, XML)
    assert (result.gpu, result.gpus, result.nvlink_spread, result.pcie) == ("A100", 2, (6, 6), "16xPCIe4")
    assert (result.compute_adapter, result.compute) == ("ConnectX-6", ("mlx5_0",))
    assert (result.storage_adapter, result.storage) == ("ConnectX-6-2P", ("mlx5_4", "mlx5_5"))
    assert result.pcie_tree["cpu0"] == ("pcie0",)
    assert result.pcie_tree["pcie0"] == ("gpu0", "gpu1", "mlx5_0")
    assert (result.bus_id["mlx5_5"], result.bus_id["nvswitch1"]) == ("0000:61:00.1", "0000:c5:00.0")
    assert result.cpu is not None
    assert (result.cpu.vendor, result.cpu.model_id) == ("AuthenticAMD", 49)
    assert template(tmp_path, XML, MachineHints(compute=["mlx5_5", "mlx5_4"])).compute == ("mlx5_5", "mlx5_4")


def test_switches_below_switches_are_one_however_many(tmp_path: Path) -> None:
    n = 5000  # deeper than Python calls itself
    inside = '<gpu dev="0" sm="80"/><nic><net name="mlx5_0"/></nic>'
    deep = f'<system version="1"><cpu>{"<pci>" * n}{inside}{"</pci>" * n}</cpu></system>'
    result = template(tmp_path, deep, MachineHints(gpu="A100", adapter="ConnectX-6"))
    assert result.pcie_tree == {"cpu0": ("pcie0",), "pcie0": ("gpu0", "mlx5_0")}


def test_rails_go_by_gpus_and_not_by_where_they_stand_in_the_file(tmp_path: Path) -> None:
    pair = '<pci busid="{bus}"><pci><gpu dev="{gpu}" sm="90"/></pci><pci><nic><net name="{nic}"/></nic></pci></pci>'
    pairs = [pair.format(bus=f"0000:{n}0:00.0", gpu=3 - n, nic=f"mlx5_{n}") for n in range(4)]
    result = template(tmp_path, f"<system><cpu numaid='0'>{''.join(pairs)}</cpu></system>", H100)
    assert result.compute == ("mlx5_3", "mlx5_2", "mlx5_1", "mlx5_0")
    assert result.nvlink_spread == ()


Servers = st.lists(  # processors -> switches -> GPUs and adapters below each
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3), min_size=1, max_size=3
)


def boxes(sockets: list[list[tuple[int, int]]]) -> dict[str, tuple[str, ...]]:
    tree: dict[str, tuple[str, ...]] = {f"cpu{number}": () for number in range(len(sockets))}
    gpus = nics = 0
    for number, switches in enumerate(sockets):
        for n_gpus, n_nics in switches:
            switch = f"pcie{len(tree) - len(sockets)}"
            tree[f"cpu{number}"] += (switch,)
            tree[switch] = (
                *(f"gpu{gpus + n}" for n in range(n_gpus)),
                *(f"mlx5_{nics + n}" for n in range(n_nics)),
            )
            gpus, nics = gpus + n_gpus, nics + n_nics
    return tree


def matrix(tree: dict[str, tuple[str, ...]], nvlinks: int, seed: int) -> str:
    """Return the matrix that nvidia-smi would print."""
    above = {name: parent for parent, names in tree.items() for name in names}
    devices = [name for names in tree.values() for name in names if not name.startswith("pcie")]
    gpus = [name for name in devices if name.startswith("gpu")]
    nics = [name for name in devices if not name.startswith("gpu")]
    random.Random(seed).shuffle(nics)
    heads = {name: name.upper() for name in gpus} | {name: f"NIC{n}" for n, name in enumerate(nics)}

    def cell(one: str, other: str) -> str:
        if one == other:
            return "X"
        if nvlinks and one in gpus and other in gpus:
            return f"NV{nvlinks}"
        if above[one] == above[other]:
            return "PIX" if (len(one) + len(other) + seed) % 2 else "PXB"
        return "NODE" if above[above[one]] == above[above[other]] else "SYS"

    lines = ["\t".join(["", *heads.values(), "CPU Affinity", "NUMA Affinity"])]
    for one in heads:
        numa = ["0-9", above[above[one]].removeprefix("cpu")] if one in gpus else []
        lines.append("\t".join([heads[one], *(f" {cell(one, other)} " for other in heads), *numa]))
    return "\n".join([*lines, "NIC Legend:", *(f"  {heads[name]}: {name}" for name in nics)])


@given(sockets=Servers, nvlinks=st.sampled_from((0, 8, 18)), seed=st.integers(0, 99))
def test_the_tree_comes_back_from_its_matrix(
    sockets: list[list[tuple[int, int]]], nvlinks: int, seed: int, tmp_path: Path
) -> None:
    tree = boxes(sockets)
    gpus = sum(item for switches in sockets for item, _ in switches)
    result = template(tmp_path, matrix(tree, nvlinks, seed), H100)
    assert {key: set(names) for key, names in result.pcie_tree.items()} == {key: set(n) for key, n in tree.items()}
    assert result.compute == tuple(f"mlx5_{n}" for n in range(len(result.compute)))
    assert sum(result.nvlink_spread) == (nvlinks if gpus > 1 else 0)


@given(sockets=Servers, spread=st.lists(st.integers(1, 4), max_size=4))
def test_nccl_files_that_weft_writes_are_read_back(
    sockets: list[list[tuple[int, int]]], spread: list[int], tmp_path: Path
) -> None:
    tree = boxes(sockets)
    text = to_yaml(_file(tmp_path, matrix(tree, 0, 1)), H100).replace("nvlink_spread: []", f"nvlink_spread: {spread}")
    result = tmp_path / "first.yaml"
    result.write_text(text)
    first = catalog.server(str(result))
    builder = FabricBuilder("one")
    nodes = add_servers(builder, str(result), ["x"])
    leaf = builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=64)
    builder.add_links(nodes.compute[0], 1, leaf[0], range(1, first.rails + 1), "NDR")
    again = template(tmp_path, nccl_topology.to_text(builder.build(), "x"), H100)
    assert again.pcie_tree == first.pcie_tree
    assert again.compute == first.compute
    assert (again.gpus, again.nvlink_spread, again.pcie) == (first.gpus, tuple(spread), first.pcie)


def _file(folder: Path, text: str) -> Path:
    path = folder / "topo.txt"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "known", "says"),
    [
        (MATRIX, MachineHints(adapter="ConnectX-7"), "does not name its GPUs.* --gpu with one of A100"),
        (MATRIX, MachineHints(gpu="H100"), "and the file does not name their model: give --adapter"),
        (MATRIX, MachineHints(gpu="H100", adapter="ConnectX-7", compute=["mlx5_9"]), "--compute mlx5_9: .* has mlx5_0"),
        (MATRIX.replace("PXB\tNODE", "PXB\tFAR"), H100, ":3: .* expected a row of `nvidia-smi topo -m`"),
        (MATRIX.replace("PXB\tNODE", "SYS\tNODE"), H100, "PXB as in row NIC0, column GPU1"),
        (MATRIX.replace("  NIC0: mlx5_0\n", ""), H100, "a column NIC0.*its name in the NIC legend"),
        (MATRIX.replace("NIC2\tSYS\tSYS", "nothing"), H100, "a column NIC2 without a row"),
        ("hello", H100, "the heading of `nvidia-smi topo -m`"),
        ("\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n", H100, "no adapter"),
        ("<system>", None, "complete NCCL XML"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><system/>", None, "no declarations"),
        ("<host/>", None, "<host>; expected <system>"),
        ("<system><cpu numaid='0'><disk/></cpu></system>", None, "<disk>; expected elements"),
        ("<system><cpu numaid='0'><pci/></cpu></system>", None, "no <gpu>.*NCCL_TOPO_DUMP_FILE"),
        (XML.replace('dev="3"', 'dev="0"'), None, "each with a different dev"),
        (XML.replace('dev="3"', 'dev="x"'), None, "expected dev, a number"),
        ("<system><cpu host_hash='0x1'/><cpu host_hash='0x2'/></system>", None, "processors of 2 machines .*one tray"),
        (XML.replace('count="6"', 'count="5"', 1), None, "the same as other GPUs"),
        (XML.replace("0x068000", "0x030200"), None, "another GPU of the file, with its NVLinks"),
        (XML.replace("0x068000", "0x060400"), None, "NVSwitches, tclass 0x068000, or GPUs"),
        (XML.replace("mlx5_5", "mlx5_0"), None, "two devices mlx5_0"),
        (XML.replace("0x20b2", "0x9999"), None, "does not name its GPUs"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(text: str, known: MachineHints | None, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        to_yaml(_file(tmp_path, text), known)


def test_gpus_that_nvlinks_join_directly(tmp_path: Path) -> None:
    """All links of a GPU shared among the others: no NVSwitches. Or some pairs alone, by bridges."""
    tree = boxes([[(2, 1), (2, 1)]])
    board = template(tmp_path, matrix(tree, 6, 1), H100)
    assert board.nvlink_spread == ()
    assert board.nvlink_pairs == catalog.server("hgx-h100-4").nvlink_pairs
    lines = matrix(tree, 0, 1).splitlines()
    for item, other in ((0, 1), (2, 3)):
        for row, column in ((item, other), (other, item)):
            cells = lines[row + 1].split("\t")
            cells[column + 1] = " NV12 "
            lines[row + 1] = "\t".join(cells)
    bridged = template(tmp_path, "\n".join(lines), MachineHints(gpu="H100-NVL", adapter="ConnectX-7"))
    assert bridged.nvlink_pairs == (("gpu0", "gpu1", 12), ("gpu2", "gpu3", 12))
    assert {key: set(names) for key, names in bridged.pcie_tree.items()} == {key: set(n) for key, n in tree.items()}


def test_a_board_comes_back_from_the_file_that_weft_writes_for_nccl(tmp_path: Path) -> None:
    builder = FabricBuilder("one")
    nodes = add_servers(builder, "quad-gh200", ["x"])
    leaf = builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=64)
    builder.add_links(nodes.compute[0], 1, leaf[0], range(1, 5), "200GbE")
    recorded = MachineHints(gpu="GH200", adapter="Cassini")
    again, first = (
        template(tmp_path, nccl_topology.to_text(builder.build(), "x"), recorded),
        catalog.server("quad-gh200"),
    )
    assert (again.nvlink_pairs, again.c2c_links, again.pcie_tree) == (
        first.nvlink_pairs, first.c2c_links, first.pcie_tree,
    )  # fmt: skip


def test_a_cube_mesh_is_refused_with_the_offending_links(tmp_path: Path) -> None:
    """DGX-1: four neighbours of each GPU, by one link or two."""
    tree = boxes([[(2, 1), (2, 1)]])
    lines = matrix(tree, 2, 1).replace("NV2", "SYS", 1).splitlines()
    lines[2] = lines[2].replace("NV2", "SYS", 1)
    with pytest.raises(FileError, match=r"full meshes.*gpu0 is joined with gpu2, gpu3.*cube meshes"):
        to_yaml(_file(tmp_path, "\n".join(lines)), H100)


def rails_of(gpus: int, nics: int, near: Callable[[int, int], bool], device: str = "mlx5_{}") -> str:
    """Return a table of GPUs behind NVSwitches and of adapters that share a PCIe switch with some of them."""
    names = [f"GPU{n}" for n in range(gpus)] + [f"NIC{n}" for n in range(nics)]

    def cell(one: int, other: int) -> str:
        low, high = sorted((one, other))
        if low == high:
            return "X"
        return "NV18" if high < gpus else "PIX" if low < gpus and near(low, high - gpus) else "NODE"

    rows = ["\t".join([name, *(cell(n, other) for other in range(len(names)))]) for n, name in enumerate(names)]
    legend = [f"  NIC{n}: {device.format(n)}" for n in range(nics)]
    return "\n".join(["\t" + "\t".join(names), *rows, "", "NIC Legend:", *legend, ""])


def test_efa_devices_of_a_gpu_are_one_rail(tmp_path: Path) -> None:
    """A P5 shows 32 of 100 Gb/s, four for each GPU; a P4d one for two."""
    p5 = rails_of(8, 32, lambda gpu, nic: nic // 4 == gpu, "rdmap{}s0")
    result = template(tmp_path, p5, MachineHints(gpu="H100", adapter="EFA-4x100"))
    assert result.compute == tuple(f"rdmap{4 * n}s0" for n in range(8))
    assert result.pcie_tree["pcie7"] == ("gpu7", "rdmap28s0")
    flat = rails_of(8, 32, lambda gpu, nic: False, "rdmap{}s0")  # as where a hypervisor hides PCIe switches
    assert template(tmp_path, flat, MachineHints(gpu="H100", adapter="EFA-4x100")).compute == result.compute
    with pytest.raises(ConfigError, match=r"4 EFA devices for each GPU.*--adapter EFA-4x100"):
        template(tmp_path, p5, MachineHints(gpu="H100", adapter="EFA-1x100"))
    p4d = rails_of(8, 4, lambda gpu, nic: nic == gpu // 2, "rdmap{}s0").replace("NV18", "NV12")
    assert len(template(tmp_path, p4d, MachineHints(gpu="A100", adapter="EFA-1x100")).compute) == 4


def test_a_tray_is_no_server(tmp_path: Path) -> None:
    tray = rails_of(4, 4, lambda gpu, nic: False)
    with pytest.raises(ConfigError, match=r"a tray: .*server=gb200-nvl72"):
        template(tmp_path, tray, MachineHints(gpu="GB200", adapter="ConnectX-7"))
    assert template(tmp_path, tray, MachineHints(gpu="B200", adapter="ConnectX-7")).gpus == 4


def test_unsupported_machines_are_refused_with_the_reason(tmp_path: Path) -> None:
    """Lines that a terminal broke, in a word or between two; AMD's; adapters that nvidia-smi does not know."""
    whole = MATRIX.expandtabs(8)
    for width in (24, 28):
        broken = "\n".join(line[:width] + "\n" + line[width:] if line[width:] else line for line in whole.splitlines())
        with pytest.raises(FileError, match="unwrapped lines"):
            template(tmp_path, broken, H100)
    with pytest.raises(FileError, match="of AMD's GPUs the output of rocm-smi"):
        template(tmp_path, "  GPU0  GPU1\nGPU0  0  XGMI\nGPU1  XGMI  0\n", H100)
    with pytest.raises(FileError, match="compute_adapter: gVNIC-200"):
        template(tmp_path, rails_of(8, 0, lambda gpu, nic: False), H100)


ROCM = (Path(__file__).parents[3] / "examples" / "rocm-topo.txt").read_text()
RAILS = tuple(f"rdma{number}" for number in range(8))
MI300X = MachineHints(gpu="MI300X", adapter="Pollara-400", compute=RAILS)


def test_rocm_smi_becomes_a_mesh_with_the_given_adapters(tmp_path: Path) -> None:
    result = template(tmp_path, ROCM, MI300X)
    assert (result.gpu, result.gpus, result.cpus, result.compute) == ("MI300X", 8, 2, RAILS)
    assert set(result.nvlink_pairs) == set(catalog.server("amd-mi300x").nvlink_pairs)
    assert result.pcie_tree["pcie3"] == ("gpu3", "rdma3")
    assert result.pcie_tree["cpu1"] == ("pcie4", "pcie5", "pcie6", "pcie7")
    two_each = template(tmp_path, ROCM, MachineHints(gpu="MI300X", adapter="Thor2", compute=RAILS[:4]))
    assert two_each.pcie_tree["pcie1"] == ("gpu2", "gpu3", "rdma1")


def test_links_of_uneven_boards_are_those_of_the_catalogs_server(tmp_path: Path) -> None:
    """GPUs two hops away have no link of their own; how many links a pair has is not printed."""
    pairs = {frozenset(pair[:2]) for pair in catalog.server("amd-mi250x").nvlink_pairs}
    lines, at = ROCM.splitlines(), ""
    for number, line in enumerate(lines):
        at = line if "between" in line else at
        words = line.split()
        if "Hops" in at and words and words[0].startswith("GPU") and words[1:2] in (["0"], ["1"]):
            row = words[0].lower()
            cells = [
                cell if cell == "0" or frozenset((row, f"gpu{peer}")) in pairs else "2"
                for peer, cell in enumerate(words[1:])
            ]
            lines[number] = " ".join((words[0], *cells))
    hints = MachineHints(gpu="MI250X", adapter="Cassini", compute=("cxi0", "cxi1", "cxi2", "cxi3"))
    result = template(tmp_path, "\n".join(lines), hints)
    assert set(result.nvlink_pairs) == set(catalog.server("amd-mi250x").nvlink_pairs)


@pytest.mark.parametrize(
    ("old", "new", "hints", "reason"),
    [
        ("XGMI", "XGMI", MachineHints(gpu="MI300X", adapter="Thor2"), "--compute with 0"),
        ("XGMI", "XGMI", MachineHints(gpu="H100", adapter="Thor2", compute=RAILS), "which is not AMD's"),
        ("XGMI", "NV18", MI300X, "a row of GPU0 with 8 cells"),
        ("GPU[3]", "GPU[8]", MI300X, "no NUMA node of GPU"),
        ("Hops between", "Jumps between", MI300X, "no table of 'Hops between two GPUs'"),
        ("GPU7   XGMI", "GPU7   PCIE", MI300X, "the same link in both rows"),
    ],
)
def test_incomplete_output_of_rocm_smi_is_refused(tmp_path, old, new, hints, reason) -> None:
    with pytest.raises(FileError, match=reason):
        template(tmp_path, ROCM.replace(old, new), hints)
