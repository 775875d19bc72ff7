"""Try every socket and file of a running lab and of its programs as some user; print which attempts succeed.

    python intruder.py USER PATIENCE_S < {"sockname": ..., "sockets": [...], "processes": [...]}

Everything is imported before the process becomes that user, who may not have access to weft's files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

from weft.lab import layouts, protocol
from weft.lab.protocol import CLIENT_INFO, CONTROL, MAGIC, Control
from weft.verbs.carriers.lab.connection import NUMBER, Kind, frame

SET, NODE_INFO, PORT_INFO, LINEAR_FORWARDING_TABLE = 2, 0x11, 0x15, 0x19
ME = 2_000_000 + os.getpid()
Target = dict[str, Any]


def packet(attribute: int, method: int, data: bytes = b"") -> bytes:
    """Return an SMP that is addressed to the sending port, in the format of ibsim's protocol."""
    mad = bytearray(256)
    mad[0:4], mad[12:16], mad[16:18] = bytes([1, 0x81, 1, method]), b"door", attribute.to_bytes(2, "big")
    mad[32:36], mad[64 : 64 + len(data)] = b"\xff" * 4, data
    return b"\xff\xff" + bytes(22) + protocol.WHOLE_MAD + mad


@contextlib.contextmanager
def new(kind: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, kind) as result:
        result.settimeout(float(sys.argv[2]))
        yield result


@contextlib.contextmanager
def controlling(target: Target) -> Iterator[socket.socket]:
    with new(socket.SOCK_DGRAM) as result:
        result.bind(protocol.address(target["sockname"], f"ctl{ME}"))
        result.connect(protocol.address(target["sockname"], "ctl"))
        yield result


def ask(control: socket.socket, kind: int, number: int, data: bytes = b"") -> bytes:
    control.send(CONTROL.pack(MAGIC, number, kind, len(data), data))
    _, _, answered, _, output = CONTROL.unpack(control.recv(512))
    if answered != kind:
        raise PermissionError("refused")
    return bytes(output)


def attach_and_set(target: Target) -> None:
    """Attach by ibsim's protocol, set a port and write a table, as OpenSM does."""
    base = target["sockname"]
    with controlling(target) as control, new(socket.SOCK_DGRAM) as data:
        data.bind(protocol.address(base, f"in{ME}"))
        info = ask(control, Control.CONNECT, 0, CLIENT_INFO.pack(ME, 0, 0, b"h3"))
        number = CLIENT_INFO.unpack_from(info)[0]
        data.connect(protocol.address(base, f"out{number}"))
        for item in (packet(PORT_INFO, SET), packet(LINEAR_FORWARDING_TABLE, SET, b"\xff" * 64), packet(NODE_INFO, 1)):
            data.send(item)
            data.recv(512)
        ask(control, Control.DISCONNECT, number)


def end_the_manager(target: Target) -> None:
    with controlling(target) as control:
        for number in range(8):
            with contextlib.suppress(PermissionError):
                ask(control, Control.DISCONNECT, number)
                return
    raise PermissionError("all refused")


def speak_for_the_manager(target: Target) -> None:
    """Write to the lab's end of the manager's connection."""
    with new(socket.SOCK_DGRAM) as result:
        for number in range(8):
            with contextlib.suppress(OSError):
                result.sendto(packet(NODE_INFO, 1), protocol.address(target["sockname"], f"out{number}"))
                return
    raise PermissionError("no socket takes it")


def sockets(target: Target, pattern: str) -> list[str]:
    result = [path for path in target["sockets"] if re.search(pattern, path)]
    assert result, f"there is no {pattern} in {target['sockets']}"
    return result


def stream(pattern: str, question: bytes = b"") -> Callable[[Target], None]:
    """Return an attempt to connect and read, after a request if one is given; it fails if the server closes instead."""

    def attempt(target: Target) -> None:
        for path in sockets(target, pattern):
            with new(socket.SOCK_STREAM) as result:
                result.connect(path)
                result.sendall(question)
                if not result.recv(1):
                    raise PermissionError("sent away")

    return attempt


def packets(target: Target) -> None:
    """Send a packet to a process: RDMA data and connection manager requests arrive on this socket."""
    for path in sockets(target, r"/verbs/mlx5_0-\d+$"):
        with new(socket.SOCK_DGRAM) as result:
            result.sendto(b"!", path)


def files(target: Target) -> None:
    for path in target["sockets"]:
        os.stat(path)


def memory(target: Target) -> None:
    for process in target["processes"]:
        shared = [
            file
            for file in os.listdir(f"/proc/{process}/fd")
            if "memfd:weft" in os.readlink(f"/proc/{process}/fd/{file}")
        ]
        assert shared, f"process {process} has no shared memory"
        with open(f"/proc/{process}/fd/{shared[0]}", "r+b") as opened:
            opened.read(1)


_DEVICES = frame(Kind.QUESTION, NUMBER.pack(1), b'{"do": "devices", "host": "h1"}')
DOORS: dict[str, Callable[[Target], None]] = {
    "ibsim's protocol": attach_and_set,
    "files": files,
    "commands": stream(r"(?<!\.cache)/[^/]+\.sock$", b'{"do": "state"}\n'),
    "orders to the manager": stream(r"\.cache/sm-[^/]+\.sock$", b'{"do": "status"}\n'),
    "umad": stream(r"\.umad$", layouts.QUESTION.pack(layouts.Question.LIST_ADAPTERS, *[0] * 9, b"h1", b"")),
    "verbs of the lab": stream(r"\.verbs$", _DEVICES),
    "memory of queues": stream(r"/verbs/mlx5_0-\d+\.memory$"),
    "packets": packets,
    "memory by /proc": memory,
}
FOR_NOBODY = {"end the manager": end_the_manager, "speak for the manager": speak_for_the_manager}


def main() -> None:
    target, user = json.load(sys.stdin), int(sys.argv[1])
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    result = {}
    for name, attempt in (DOORS | FOR_NOBODY).items():
        try:
            attempt(target)
            result[name] = "in"
        except OSError as error:
            result[name] = str(error)
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
