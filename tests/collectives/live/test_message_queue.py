"""Messages from rank to rank."""

from __future__ import annotations

import numpy as np
import pytest
from tests.collectives.live.ranks import together

from weft.collectives.live.group import Group
from weft.errors import ConfigError, SubnetError


def message(seed: int, length: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, length, np.uint8)


@pytest.mark.parametrize("length", [0, 1, 1024 - 16, 1024 - 15, 10_000])
def test_all_may_begin_to_send_before_any_receives(length: int) -> None:
    """Ranks form a ring, and messages are larger than all slots together."""

    def rank(group: Group) -> None:
        queue, n = group.message_queue, group.size
        sending = queue.send((group.rank + 1) % n, message(group.rank, length), tag=5)
        into = np.zeros(length, np.uint8)
        receiving = queue.receive(into, (group.rank - 1) % n, 5)
        queue.wait(receiving)
        queue.wait(sending)
        np.testing.assert_array_equal(into, message((group.rank - 1) % n, length))

    together(3, rank)


def test_tags_tell_messages_apart_whatever_their_order() -> None:
    def rank(group: Group) -> None:
        queue = group.message_queue
        if group.rank == 0:
            begun = [queue.send(1, message(tag, 9000), tag) for tag in (1, 2, 3, 1)]
            for item in begun:
                queue.wait(item)
            return
        for tag in (3, 1, 1, 2):
            receiving = queue.receive(into := np.zeros(9000, np.uint8), None, tag)
            queue.wait(receiving)
            assert (receiving.source, receiving.length) == (0, 9000)
            np.testing.assert_array_equal(into, message(tag, 9000))

    together(2, rank)


def test_a_message_that_is_too_long_is_an_error_and_the_next_one_is_none() -> None:
    def rank(group: Group) -> None:
        queue = group.message_queue
        if group.rank == 0:
            for length in (10, 5):
                queue.wait(queue.send(1, message(length, length)))
            return
        with pytest.raises(ConfigError, match="a message of 10 bytes from rank 0 came for a place of 5"):
            queue.wait(queue.receive(np.zeros(5, np.uint8), 0))
        queue.wait(queue.receive(into := np.zeros(5, np.uint8), 0))
        np.testing.assert_array_equal(into, message(5, 5))

    together(2, rank)


def test_a_rank_sends_to_itself_before_or_after_it_receives() -> None:
    def rank(group: Group) -> None:
        queue, into = group.message_queue, np.zeros(9, np.uint8)
        queue.wait(queue.send(group.rank, message(1, 9), tag=4))
        queue.wait(queue.receive(into, None, 4))
        np.testing.assert_array_equal(into, message(1, 9))
        receiving = queue.receive(into[:5], group.rank)
        assert not receiving.is_done
        queue.send(group.rank, message(2, 5))
        queue.wait(receiving)
        np.testing.assert_array_equal(into[:5], message(2, 5))

    together(1, rank)
    together(2, rank)


def test_timeout_of_a_message_states_the_time() -> None:
    def rank(group: Group) -> None:
        if group.rank == 0:
            with pytest.raises(SubnetError, match=r"rank 1: nothing within 0\.1 s, in a receive from rank 1"):
                group.message_queue.wait(group.message_queue.receive(np.zeros(1, np.uint8), 1), 0.1)

    together(2, rank)


@pytest.mark.parametrize("to", [2, -1])
def test_sending_to_an_absent_rank_fails(to: int) -> None:
    def rank(group: Group) -> None:
        if group.rank == 1:
            with pytest.raises(ConfigError, match=f"rank {to} is none of the others of rank 1 of 2"):
                group.message_queue.send(to, message(0, 1))

    together(2, rank)
