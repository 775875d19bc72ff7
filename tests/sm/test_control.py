"""A client of a subnet manager: its requests, and errors of managers that do not answer."""

from __future__ import annotations

import pytest

from weft import json_lines, runtime
from weft.errors import ConfigError, NoResponseError, SubnetError
from weft.sm.conf.qos_options import QosOptions
from weft.sm.control import ManagerSocket, MemberDefinition, OutOfDate, PartitionDefinition

RED = PartitionDefinition(name="red", p_key=0x0101, members=(MemberDefinition(0x11),), sl=3, ipoib=True)


@pytest.fixture
def manager(tmp_path):
    """The client of a stopped manager, whose socket still exists."""
    listener = runtime.Listener(tmp_path / "sm.sock")
    yield ManagerSocket(tmp_path / "sm.sock", timeout_s=0.05)
    listener.close()


def test_unanswered_query_changes_nothing(manager):
    with pytest.raises(NoResponseError, match=r"sm\.sock has not answered within 0\.05 s: nothing was changed"):
        manager.allocation()


def test_unanswered_change_may_still_apply(manager):
    with pytest.raises(NoResponseError, match=r"within 0\.05 s: it may still apply the change"):
        manager.allocate("1", remove=[0x0101])


# -- the client -------------------------------------------------------------------------------------------------------


@pytest.fixture
def socket(tmp_path, monkeypatch):
    """Return a client whose requests are recorded and get the answer or the error that the test prepares."""

    def request(path: object, do: str, timeout_s: float, **words: object) -> object:
        client.calls.append((do, timeout_s, words))
        if isinstance(client.answer, Exception):
            raise client.answer
        return {"differences": [], "repaired": []} if do == "check" else client.answer

    monkeypatch.setattr(json_lines, "request", request)
    client = ManagerSocket(tmp_path / "sm.sock", timeout_s=50)
    client.calls, client.answer = [], {"revision": "7"}  # type: ignore[attr-defined]
    return client


def test_orders_have_the_whole_time_and_queries_30_seconds(socket):
    assert socket.allocate("6", remove=[5]) == "7"
    socket.check(repair=True)
    socket.allocation()
    assert [(do, timeout_s) for do, timeout_s, _ in socket.calls] == [
        ("allocate", 50),
        ("check", 50),
        ("allocation", 30),
    ]
    assert [words for _, _, words in socket.calls] == [
        {"revision": "6", "set": [], "remove": [5]},
        {"repair": True},
        {},
    ]
    socket.timeout_s = 20
    socket.allocation()
    assert socket.calls[-1][1] == 20


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, {}),
        ({"qos": None}, {"qos": None}),
        ({"qos": QosOptions(high_limit=2)}, {"qos": {"high_limit": 2}}),
        ({"default_is_full": False}, {"default_is_full": False}),
        ({"default_is_full": None}, {}),
        ({"define": [RED]}, {"set": [RED]}),
    ],
)
def test_only_given_parts_of_a_change_are_sent(socket, given, sent):
    socket.allocate(**given)
    assert socket.calls[0][2] == {"revision": None, "set": [], "remove": []} | sent


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (json_lines.CommandRefused("read it again", "out of date"), OutOfDate, "^read it again$"),
        (TimeoutError(), NoResponseError, "within 30 s: nothing was changed"),
        (ConnectionRefusedError(), SubnetError, "no subnet manager answers at .*: ConnectionRefusedError;"),
        (ValueError("no JSON"), SubnetError, "no subnet manager answers at .*: no JSON;"),
        (ConfigError("no"), ConfigError, "^no$"),
    ],
)
def test_a_failed_request_is_reported_by_its_cause(socket, answer, error, text):
    socket.answer = answer
    with pytest.raises(error, match=text):
        socket.allocation()
