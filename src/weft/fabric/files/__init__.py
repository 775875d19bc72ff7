"""File formats of fabrics: read, written, or both.

fabric = files.read("selene.txt")                   the format follows from the name or the content
files.write(fabric, "topology.conf")                the format follows from the name, or is given
files.write(fabric, "dumps", format="opensm")
files.write(fabric, "-", format="ibnetdiscover")    standard output; read("-") is standard input
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import ConfigError, FileError, find_named
from weft.fabric.files.atomic import write_atomically
from weft.fabric.files.text import is_stream, peek
from weft.plugins import Registry

if TYPE_CHECKING:
    from weft.fabric.model import Fabric

__all__ = ["FORMATS", "Format", "read", "text", "to_text", "write"]

_SNIFFED_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A file format."""

    name: str
    description: str
    suffixes: tuple[str, ...]  # file names end with these, the usual one first
    module: str  # its `read(path)` returns a fabric, and its `function(fabric)` returns a text
    function: str = "to_text"
    reads: bool = False  # False: only written
    content: re.Pattern[str] | None = None  # a pattern near the beginning of such a file


_OWN = (
    Format(
        name="lab",
        description="lab file: nodes, links and faults written by hand",
        suffixes=(".yaml", ".yml", ".toml"),
        reads=True,
        module=f"{__name__}.lab",
    ),
    Format(
        name="ibnetdiscover",
        description="output of ibnetdiscover, input of ibsim",
        suffixes=(".ibnetdiscover", ".net", ".txt"),
        reads=True,
        module=f"{__name__}.ibnetdiscover",
        content=re.compile(r'^(vendid=|(switch|ca|rt)guid=|(Switch|Ca|Hca|Rt)\s*\d+\s*")', re.MULTILINE),
    ),
    Format(
        name="opensm",
        description="dumps of OpenSM: reads opensm-subnet.lst, writes a directory of all",
        suffixes=(".lst",),
        reads=True,
        module=f"{__name__}.opensm",
        content=re.compile(r"\A\s*\{ (CA|SW|Rt)\b"),
    ),
    Format(
        name="ibdiagnet",
        description="ibdiagnet2.db_csv of ibdiagnet 2",
        suffixes=(".db_csv",),
        reads=True,
        module=f"{__name__}.ibdiagnet",
        content=re.compile(r"^START_[A-Z0-9_]+[ \t]*\r?$", re.MULTILINE),
    ),
    Format(
        name="ndt",
        description="cable plan of UFM: CSV with StartDevice, StartPort, EndDevice, EndPort",
        suffixes=(".ndt", ".csv"),
        reads=True,
        module=f"{__name__}.ndt",
        content=re.compile(r"\A[^\n]*\bStartDevice\b"),
    ),
    Format(
        name="slurm",
        description="topology.conf of Slurm, for topology/tree",
        suffixes=("topology.conf",),
        module=f"{__name__}.slurm",
        content=re.compile("^SwitchName=", re.MULTILINE),
    ),
    Format(
        name="graphml",
        description="GraphML, for networkx, Gephi and yEd",
        suffixes=(".graphml",),
        module=f"{__name__}.graphs",
        function="to_graphml",
        content=re.compile(r"<graphml\b"),
    ),
    Format(
        name="json",
        description="nodes and links in JSON, for d3 and networkx",
        suffixes=(".json",),
        module=f"{__name__}.graphs",
        function="to_json",
        content=re.compile(r'\A\s*\{\s*"weft"'),
    ),
    Format(
        name="nccl",
        description="NCCL_TOPO_FILE: the inside of the first server with GPUs",
        suffixes=(".xml",),
        module=f"{__name__}.nccl_topology",
        content=re.compile(r"\A\s*<system\b"),
    ),
)
FORMATS: Registry[Format] = Registry(
    "weft.files",
    {each.name: each for each in _OWN},
    "a weft.fabric.files.Format of this name",
    lambda name, extension: isinstance(extension, Format) and extension.name == name,
)


def read(path: Path | str) -> Fabric:
    """Return the fabric in a file; its name or its content determines the format."""
    path = Path(path)
    with peek(path, _SNIFFED_BYTES) as data:
        head = data.decode("latin-1").removeprefix("\xef\xbb\xbf")
        fabric: Fabric = import_module(_recognise(path, head).module).read(path)
    return fabric


def write(fabric: Fabric, path: Path | str, format: str | None = None) -> None:  # noqa: A002
    """Write a fabric atomically, in this format or in that of the file's name."""
    path = Path(path)
    chosen = find_named("format", format, FORMATS) if format is not None else _format_of(path)
    if chosen.name == "opensm" and path.suffix != ".lst" and not is_stream(path):
        _write_dumps(fabric, path)
    elif chosen.name == "lab" and path.suffix == ".toml":
        raise ConfigError(f"{path}: lab files are written only in YAML; end the name with .yaml")
    else:
        write_atomically(path, to_text(fabric, chosen.name))


def to_text(fabric: Fabric, format: str) -> str:  # noqa: A002
    """Return the text that `write` would write to a file of this format."""
    chosen = find_named("format", format, FORMATS)
    writer = getattr(import_module(chosen.module), chosen.function)
    text: str = writer(fabric, _first_server(fabric)) if chosen.name == "nccl" else writer(fabric)
    return text


def _write_dumps(fabric: Fabric, directory: Path) -> None:
    from weft.fabric.files.opensm import write_dumps

    try:
        directory.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write into {directory}: {error.strerror}") from error
    write_dumps(fabric, directory)


def _first_server(fabric: Fabric) -> str:
    from weft.fabric.kinds import NodeKind

    inside = fabric.nodes.server[fabric.of_kind(NodeKind.GPU)]
    if not len(inside):
        raise ConfigError(f"{fabric.spec} has no GPUs: NCCL's topology file needs a server with GPUs, such as dgx-h100")
    return fabric.servers[int(inside[0])]


def _format_of(path: Path) -> Format:
    for each in FORMATS.working().values():
        if path.name.lower().endswith(each.suffixes):
            return each
    endings = ", ".join(f"{each.suffixes[0]} ({each.name})" for each in FORMATS.working().values())
    if is_stream(path):
        raise ConfigError(f"{path}: unknown format; give -f {' | '.join(FORMATS)}")
    raise ConfigError(f"{path}: unknown format; end the name with {endings}, or give --format")


def _recognise(path: Path, head: str) -> Format:
    """Return the format of an existing file: by its name if that is certain, else by its content."""
    by_name = next((each for each in FORMATS.working().values() if path.name.lower().endswith(each.suffixes)), None)
    if by_name is FORMATS["lab"]:
        return by_name
    by_content = next((each for each in FORMATS.working().values() if each.content and each.content.search(head)), None)
    if by_content is None and head.strip() and is_stream(path):
        return FORMATS["lab"]  # the only format without a content pattern
    chosen = by_content or by_name
    if chosen is not None and chosen.reads and (by_content or path.suffix != ".txt"):
        return chosen
    first_line = head.strip().partition("\n")[0].strip() or "an empty file"
    readable = "; ".join(f"{each.name} ({each.description})" for each in FORMATS.working().values() if each.reads)
    if chosen is not None and not chosen.reads:
        raise FileError(path, None, first_line, f"a format that weft reads: {readable}; {chosen.name} is only written")
    raise FileError(path, 1, first_line, f"one of: {readable}")
