"""Read and write traffic files: CSV with one message per line, or JSON with the same fields.

    src,dst,size,start_ns,after,sl,operation,transport,qp
    h1,h2,2M,0,,,write,rc,0
    h2,h3,64K,500,0 1,3,send,rc,0

    {"description": "two steps", "outstanding": 0, "messages": [
      {"src": "h1", "dst": "h2", "size": "2M"},
      {"src": "h2", "dst": "h3", "size": 65536, "start_ns": 500, "after": [0], "sl": 3, "operation": "send"}]}

src, dst    a server, an adapter or a port of one: h1, dgx1/mlx5_3, h1/1
size        bytes, or 64K, 2M, 1G: powers of 1024
start_ns    start time; if it waits for others, the delay after the last of them was delivered
after       numbers of the messages that it waits for; the first message of the file is 0
sl          service level; empty: that of the path record
operation   write, send or read
transport   rc, uc or ud
qp          number of the queue pair between sender and receiver

The first three are required. In CSV the first line names the columns, in any order; lines with # are comments.
JSON also has `outstanding`: the messages that a queue pair may have unacknowledged; 0: no limit.
Connection matrices of htsim are read too: `weft.sim.connection_matrix`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from weft.errors import ConfigError, FileError
from weft.fabric.files.atomic import write_atomically
from weft.fabric.files.text import is_stream, peek, read_text, suffix_of
from weft.fabric.model import Fabric
from weft.schemas import explain
from weft.sim.connection_matrix import read_connection_matrix
from weft.sim.goal import GOAL, format_goal
from weft.sim.traffic import PATH_SL, Operation, Traffic, Transport, find_host_port
from weft.units import parse_size_bytes

SUFFIXES = (".csv", ".json")
MATRIX = ".cm"  # read only: a connection matrix of htsim
_LARGEST_BYTES = 1 << 42  # limit of the engines
_LATEST_NS = 1e12
_OPERATIONS = {operation.name.lower(): operation for operation in Operation}
_TRANSPORTS = {transport.name.lower(): transport for transport in Transport}


class Message(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A line of a traffic file."""

    src: str
    dst: str
    size: Annotated[int, msgspec.Meta(ge=0)] | str
    start_ns: Annotated[float, msgspec.Meta(ge=0, le=_LATEST_NS)] = 0.0
    after: list[Annotated[int, msgspec.Meta(ge=0)]] = []
    sl: Annotated[int, msgspec.Meta(ge=0, le=15)] | None = None
    operation: Literal["write", "send", "read"] = "write"
    transport: Literal["rc", "uc", "ud"] = "rc"
    qp: Annotated[int, msgspec.Meta(ge=0, lt=1 << 24)] = 0


class _Document(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A JSON file whose messages are not decoded yet."""

    messages: list[msgspec.Raw]
    description: str = ""
    outstanding: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] = 0


COLUMNS = Message.__struct_fields__
_NEEDED = COLUMNS[:3]


def is_traffic_file(name: str) -> bool:
    """Return whether this is the name of a traffic file; the file need not exist."""
    return is_stream(name) or Path(name).suffix.lower() in (*SUFFIXES, MATRIX)


def check_suffix(path: Path | str) -> str:
    """Return the suffix of a traffic file; a stream is JSON, which can hold everything."""
    suffix = suffix_of(path, ".json")
    if suffix not in SUFFIXES:
        raise ConfigError(f"{path} is not a traffic file: its suffix must be {' or '.join(SUFFIXES)}")
    return suffix


def check_writable(path: Path | str) -> str:
    """Return the suffix of a file for `write_traffic`."""
    return GOAL if suffix_of(path, ".json") == GOAL else check_suffix(path)


def read_traffic(path: Path | str, fabric: Fabric) -> Traffic:
    """Read a traffic file whose names refer to a fabric."""
    path = Path(path)
    if path.suffix.lower() == MATRIX:
        return read_connection_matrix(path, fabric)
    suffix = check_suffix(path)
    with peek(path, 1) as begin:
        if suffix == ".json" and (begin == b"{" or not is_stream(path)):
            document = _Json(path)
            return _traffic(path, fabric, document.messages(), document.head.description, document.head.outstanding)
        return _traffic(path, fabric, _read_csv(path), "", 0)


def write_traffic(path: Path | str, fabric: Fabric, traffic: Traffic) -> None:
    """Write traffic in the format of the suffix, atomically."""
    if traffic.mlid.any() or traffic.reduction.any():
        raise ConfigError(f"{path}: a traffic file cannot hold multicast messages or reductions in switches")
    if check_writable(path) == GOAL:
        write_atomically(path, format_goal(path, fabric, traffic))
        return
    if check_suffix(path) == ".json":
        write_atomically(path, _to_json(fabric, traffic))
        return
    if traffic.outstanding:
        raise ConfigError(f"{path}: CSV cannot hold outstanding={traffic.outstanding}; write a .json file")
    write_atomically(path, _to_csv(fabric, traffic))


# -- reading ----------------------------------------------------------------------------------------------------------


def _read_csv(path: Path) -> Iterator[tuple[int, Message]]:
    """Yield the messages with their line numbers."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    columns: list[str] = []
    try:
        for cells in reader:
            if not cells or cells[0].lstrip().startswith("#"):
                continue
            if columns:
                yield reader.line_num, _from_cells(path, reader.line_num, columns, cells)
            else:
                columns = _check_columns(path, reader.line_num, [cell.strip() for cell in cells])
    except csv.Error as error:
        raise FileError(path, reader.line_num, str(error), "comma-separated values") from None
    if not columns:
        raise FileError(path, None, "no line", f"a header line with the columns: {','.join(COLUMNS)}")


def _check_columns(path: Path, line: int, columns: list[str]) -> list[str]:
    for column in columns:
        if column not in COLUMNS:
            raise FileError(path, line, column, f"column names among {', '.join(COLUMNS)}")
        if columns.count(column) > 1:
            raise FileError(path, line, ",".join(columns), f"column {column} only once")
    if missing := [column for column in _NEEDED if column not in columns]:
        raise FileError(path, line, ",".join(columns), f"column {missing[0]} too: {', '.join(_NEEDED)} are required")
    return columns


def _from_cells(path: Path, line: int, columns: list[str], cells: list[str]) -> Message:
    if len(cells) != len(columns):
        raise FileError(path, line, ",".join(cells), f"{len(columns)} cells as in the first line, not {len(cells)}")
    values = {column: cell.strip() for column, cell in zip(columns, cells, strict=True) if cell.strip()}
    if missing := [column for column in _NEEDED if column not in values]:
        raise FileError(path, line, ",".join(cells), f"a value for {missing[0]}")
    fields: dict[str, object] = {**values, "after": values.get("after", "").split()}
    try:
        return msgspec.convert(fields, Message, strict=False)
    except msgspec.ValidationError as error:
        raise _refused(path, line, error, fields) from None


class _Json:
    """A JSON file with the line numbers of its messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = read_text(path).encode()
        try:
            self.head = msgspec.json.decode(self.text, type=_Document)
        except msgspec.ValidationError as error:
            misfit = explain(error, _Document)
            read = f"unknown key {misfit.place[-1]}" if misfit.is_key else "not a traffic file"
            raise FileError(path, None, read, misfit.expected) from None
        except msgspec.DecodeError as error:
            place = str(error).rpartition("(byte ")[2].rstrip(")")
            line = self.text.count(b"\n", 0, int(place)) + 1 if place.isdecimal() else None
            raise FileError(path, line, str(error), "JSON") from None

    def messages(self) -> Iterator[tuple[int, Message]]:
        decoder = msgspec.json.Decoder(Message)
        place, line = 0, 1
        for raw in self.head.messages:
            begin = self.text.index(bytes(raw), place)
            line += self.text.count(b"\n", place, begin)
            place = begin
            try:
                yield line, decoder.decode(raw)
            except msgspec.ValidationError as error:
                raise _refused(self.path, line, error, msgspec.json.decode(raw)) from None


def _refused(path: Path, line: int, error: msgspec.ValidationError, fields: object) -> FileError:
    """Return the error for a wrong field: its value and the rule."""
    misfit = explain(error, Message)
    if misfit.is_key:
        read = str(misfit.place[-1])
    elif misfit.place and isinstance(fields, dict):
        value = fields[misfit.place[0]]
        read = f"{misfit.place[0]} {' '.join(map(str, value)) if isinstance(value, list) else value}"
    else:
        read = msgspec.json.encode(fields).decode()
    return FileError(path, line, read, misfit.expected)


def _traffic(
    path: Path, fabric: Fabric, messages: Iterable[tuple[int, Message]], description: str, outstanding: int
) -> Traffic:
    """Resolve names to ports, check references between messages, and build the traffic."""
    slots: dict[str, int] = {}
    rows: list[tuple[int, int, int, int, int, int, int, int]] = []
    after: list[list[int]] = []
    lines: list[int] = []
    for line, message in messages:
        src, dst = (_slot(path, line, fabric, slots, name) for name in (message.src, message.dst))
        if src == dst:
            raise FileError(path, line, message.dst, f"another receiver: {message.src} is the sender")
        sl = PATH_SL if message.sl is None else message.sl
        kinds = _OPERATIONS[message.operation], _TRANSPORTS[message.transport]
        rows.append((src, dst, _size(path, line, message.size), round(message.start_ns * 1000), sl, *kinds, message.qp))
        after.append(message.after)
        lines.append(line)
    if not rows:
        raise FileError(path, None, "no message", "at least one message")
    for number, waits_for in enumerate(after):
        if bad := [index for index in waits_for if index >= len(rows) or index == number]:
            expected = f"numbers of other messages, 0 to {len(rows) - 1}; this is {number}"
            raise FileError(path, lines[number], f"after {bad[0]}", expected)
    src, dst, size, start_ps, sl, operation, transport, qp = np.array(rows, np.int64).T
    waits = np.array([bool(waits_for) for waits_for in after])
    return Traffic.make(
        src,
        dst,
        size,
        description=description or path.name,
        start_ps=np.where(waits, 0, start_ps),
        delay_ps=np.where(waits, start_ps, 0),
        sl=sl,
        operation=operation,
        transport=transport,
        qp=qp,
        after=after,
        outstanding=outstanding,
    )


def _slot(path: Path, line: int, fabric: Fabric, slots: dict[str, int], name: str) -> int:
    if name not in slots:
        try:
            slots[name] = find_host_port(fabric, name)
        except ConfigError as error:
            why = str(error).partition("\n")[0]
            raise FileError(path, line, name, f"a host, an adapter or a port of {fabric.spec}: {why}") from None
    return slots[name]


def _size(path: Path, line: int, size: int | str) -> int:
    try:
        size_bytes = size if isinstance(size, int) else parse_size_bytes(size)
    except ConfigError:
        size_bytes = _LARGEST_BYTES + 1
    if size_bytes > _LARGEST_BYTES:
        raise FileError(path, line, f"size {size}", "bytes, up to 4 TiB: 8, 4K, 1M or 8G")
    return size_bytes


# -- writing ----------------------------------------------------------------------------------------------------------


def _messages(fabric: Fabric, traffic: Traffic) -> Iterator[Message]:
    """Yield the messages as rows of a file."""
    names = {int(slot): _name(fabric, int(slot)) for slot in np.unique(np.concatenate((traffic.src, traffic.dst)))}
    first, after = traffic.after_first.tolist(), traffic.after.tolist()
    for row in range(len(traffic)):
        waits_for = after[first[row] : first[row + 1]]
        sl = int(traffic.sl[row])
        yield Message(
            src=names[int(traffic.src[row])],
            dst=names[int(traffic.dst[row])],
            size=int(traffic.size_bytes[row]),
            start_ns=int((traffic.delay_ps if waits_for else traffic.start_ps)[row]) / 1000,
            after=waits_for,
            sl=None if sl == PATH_SL else sl,
            operation=Operation(int(traffic.operation[row])).name.lower(),  # type: ignore[arg-type]
            transport=Transport(int(traffic.transport[row])).name.lower(),  # type: ignore[arg-type]
            qp=int(traffic.qp[row]),
        )


def _name(fabric: Fabric, slot: int) -> str:
    """Return the shortest unambiguous name: the adapter, or the port if the adapter has several."""
    port = fabric.port(slot)
    return port.node.name if find_host_port(fabric, port.node.name) == slot else port.name


def _to_csv(fabric: Fabric, traffic: Traffic) -> str:
    out = io.StringIO()
    print(f"# {traffic.description} on {Path(fabric.spec).name}".replace("\n", " "), file=out)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for message in _messages(fabric, traffic):
        sl, after = "" if message.sl is None else message.sl, " ".join(map(str, message.after))
        start_ns = int(message.start_ns) if message.start_ns.is_integer() else message.start_ns
        writer.writerow(
            (
                message.src,
                message.dst,
                message.size,
                start_ns,
                after,
                sl,
                message.operation,
                message.transport,
                message.qp,
            )
        )
    return out.getvalue()


def _to_json(fabric: Fabric, traffic: Traffic) -> bytes:
    head = msgspec.json.encode({"description": traffic.description, "outstanding": traffic.outstanding})
    body = b",\n".join(b"  " + msgspec.json.encode(message) for message in _messages(fabric, traffic))
    return head[:-1] + b', "messages": [\n' + body + b"\n]}\n"
