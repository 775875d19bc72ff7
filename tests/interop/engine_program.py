"""Move memory between two processes by NIXL or Mooncake: engine_program.py ENGINE SOCKET serve|come.

The process with role `come` connects to the other, writes its bytes into that one's memory and reads the other's bytes.
Each process compares a digest of the received bytes.
"""

from __future__ import annotations

import hashlib
import os
import sys
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import numpy
from tests.patience import wait_until

SIZE = 1 << 20
NIXL_SETTINGS = {"UCX_TLS": "rc_v,self", "UCX_NET_DEVICES": "mlx5_0:1"}


class Nixl:
    def __init__(self, memory: numpy.ndarray, role: str) -> None:
        os.environ |= NIXL_SETTINGS  # not sockets, nor UCX's own shared memory
        sys.modules["torch"] = None  # type: ignore[assignment]  # NIXL would import all of it to ask for which CUDA it is
        from nixl import nixl_agent, nixl_agent_config

        self.agent, self.memory = nixl_agent(role, nixl_agent_config(backends=["UCX"])), memory
        self.agent.register_memory(self.agent.get_reg_descs([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM"))

    def introduction(self) -> tuple[bytes, int]:
        return self.agent.get_agent_metadata(), self.memory.ctypes.data

    def move(self, peer: tuple[bytes, int], operation: str, own: int, far: int) -> None:
        name = self.agent.add_remote_agent(peer[0])
        ours, theirs = (
            self.agent.get_xfer_descs([(address, SIZE, 0)], "DRAM")
            for address in (self.memory.ctypes.data + own, peer[1] + far)
        )
        request = self.agent.initialize_xfer(operation, ours, theirs, name)
        self.agent.transfer(request)
        wait_until(lambda: self.agent.check_xfer_state(request) == "DONE", lambda: f"that a {operation} is done")


class Mooncake:
    def __init__(self, memory: numpy.ndarray, role: str) -> None:
        from mooncake.engine import TransferEngine

        self.engine, self.memory = TransferEngine(), memory
        assert self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") == 0
        assert self.engine.register_memory(memory.ctypes.data, memory.nbytes) == 0

    def introduction(self) -> tuple[str, int]:
        return f"127.0.0.1:{self.engine.get_rpc_port()}", self.memory.ctypes.data

    def move(self, peer: tuple[str, int], operation: str, own: int, far: int) -> None:
        go = self.engine.transfer_sync_write if operation == "WRITE" else self.engine.transfer_sync_read
        assert go(peer[0], self.memory.ctypes.data + own, peer[1] + far, SIZE) == 0


def digest(half: numpy.ndarray) -> str:
    return hashlib.sha256(half.tobytes()).hexdigest()


def meet(path: str, role: str) -> Connection:
    if role == "serve":
        with Listener(f"{path}.new") as listener:
            os.link(f"{path}.new", path)  # the client may connect as soon as the path exists
            return listener.accept()
    wait_until(lambda: os.path.exists(path), lambda: f"a server at {path}")
    return Client(path)


def main(engine: str, path: str, role: str) -> None:
    memory = numpy.zeros(2 * SIZE, numpy.uint8)
    memory[:SIZE] = numpy.frombuffer(os.urandom(SIZE), numpy.uint8)
    used = {"nixl": Nixl, "mooncake": Mooncake}[engine](memory, role)
    with meet(path, role) as other:
        other.send((used.introduction(), digest(memory[:SIZE])))
        peer, theirs = other.recv()
        if role == "come":
            used.move(peer, "WRITE", own=0, far=SIZE)
            used.move(peer, "READ", own=SIZE, far=0)
        _both(other)
        assert digest(memory[SIZE:]) == theirs
        _both(other)  # neither process may end before both have compared
    print("the bytes of the other end are here")


def _both(other: Any) -> None:
    other.send("done")
    other.recv()


if __name__ == "__main__":
    main(*sys.argv[1:])
