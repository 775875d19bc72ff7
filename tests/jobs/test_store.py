"""The store of a job: values, waiting, limits, connections."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patience import wait_until

from weft import runtime
from weft.collectives.live import store as client
from weft.collectives.live.store import JobStore
from weft.errors import ConfigError, NoResponseError
from weft.jobs.store import Store


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Store(runtime.folder() / "test.store") as store:
        yield store.address


@given(st.text(st.characters(codec="utf-8")), st.binary(), st.binary())
def test_a_value_comes_back_as_it_was_set_last(address, key, first, last):
    for value in (first, last):
        JobStore(address).set(key, value)
    assert JobStore(address).get(key, 0) == last


def test_get_waits_until_the_value_is_set(address):
    values: list[bytes] = []
    waiting = [threading.Thread(target=lambda: values.append(JobStore(address).get("late", 600))) for _ in range(3)]
    for thread in waiting:
        thread.start()
    JobStore(address).set("other", b"no")
    JobStore(address).set("late", b"\0\xff")
    for thread in waiting:
        thread.join()
    assert values == [b"\0\xff"] * 3


def test_a_timeout_names_the_missing_key(address):
    with pytest.raises(TimeoutError, match=r"no rank has set 'rank 7' in the job's store in 0.01 s"):
        JobStore(address).get("rank 7", 0.01)


def test_a_large_value_goes_through_and_one_too_large_is_refused(address, monkeypatch):
    large = bytes(range(256)) * 4096
    JobStore(address).set("large", large)
    assert JobStore(address).get("large", 0) == large
    monkeypatch.setattr(client, "LONGEST_BYTES", len(large) - 1)
    with pytest.raises(ConfigError, match=r"'large' has 1,048,576 bytes: .* takes values up to 1,048,575"):
        JobStore(address).set("large", large)


@pytest.mark.parametrize("timeout_s", [-1.0, float("nan"), float("inf")])
def test_an_invalid_timeout_is_refused(address, timeout_s):
    with pytest.raises(ConfigError, match="the job's store waits for 'x' from 0 to 31,622,400 s"):
        JobStore(address).get("x", timeout_s)


def test_commands_of_a_process_share_one_connection(address, monkeypatch):
    """A forked child, and a client whose connection was closed, open a new one."""
    dialled, dial, store = [], runtime.dial, JobStore(address)
    monkeypatch.setattr(runtime, "dial", lambda *words: dialled.append(words) or dial(*words))
    for n in range(3):
        store.set("n", bytes([n]))
        assert store.get("n", 0) == bytes([n])
    assert len(dialled) == 1
    child = os.fork()
    if not child:
        store.set("before", b"")
        store.set("child", bytes([len(dialled)]))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (store.get("child", 0), len(dialled)) == (b"\2", 1)
    with pytest.raises(TimeoutError):
        store.get("missing", 0)
    line = store._line
    line._socket.shutdown(socket.SHUT_WR)  # the server closes its end
    wait_until(lambda: not line._socket.recv(1))
    assert (store.get("n", 0), len(dialled)) == (b"\2", 2)


def test_the_socket_is_private_and_removed_on_close():
    place = runtime.folder() / "gone.store"
    earlier = JobStore(str(place))
    with Store(place) as store:
        assert stat.S_IMODE(Path(store.address).stat().st_mode) == 0o600
        earlier.set("x", b"value")
    assert not place.exists()
    for client_store in (JobStore(str(place)), earlier):
        with pytest.raises(NoResponseError, match=r"the store of the job at .*gone.store does not answer"):
            client_store.get("x", 1)
