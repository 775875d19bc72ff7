"""Connections between the ranks of a program: TCP beside RDMA."""

from __future__ import annotations

import socket
import threading
from typing import Any

import numpy as np
from tests.collectives.live.ranks import Board

from weft.scenarios.workloads.rank import Sockets


def test_data_that_follows_the_rank_of_a_peer_at_once_is_received():
    store: Any = Board()

    def connect() -> None:
        with socket.create_connection(("127.0.0.1", int(store.get("tcp 0", 60)))) as peer:
            peer.sendall(bytes([1]) + np.arange(5.0).tobytes())

    thread = threading.Thread(target=connect)
    thread.start()
    sockets, place = Sockets(store, 0, 2), np.zeros(5)
    sockets.receive(place, 1)
    thread.join()
    sockets.close()
    assert place.tolist() == [0, 1, 2, 3, 4]


def test_ranks_exchange_data_and_reduce_it():
    store: Any = Board()
    results: dict[int, tuple[float, list[float]]] = {}

    def run(rank: int) -> None:
        sockets, place, data = Sockets(store, rank, 3), np.zeros(1), np.full(4, float(rank))
        sockets.exchange(np.array([10.0 * rank]), (rank + 1) % 3, place, (rank - 1) % 3)
        sockets.all_reduce(data)
        sockets.barrier()
        sockets.close()
        results[rank] = float(place[0]), data.tolist()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {rank: (10.0 * ((rank - 1) % 3), [3.0] * 4) for rank in range(3)}
