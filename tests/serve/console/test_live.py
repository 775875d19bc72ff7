"""Events of the console: all listeners get the same."""

from __future__ import annotations

import asyncio

from weft.serve.console.event_stream import LOG, STATE, EventStream


def _heard(live: EventStream, parts: int) -> list[bytes]:
    async def listen() -> list[bytes]:
        result = []
        async for part in live.listen():
            result.append(part)
            if len(result) == parts:
                break
        return result

    return asyncio.run(asyncio.wait_for(listen(), 60))


def test_a_new_listener_gets_the_log_and_the_latest_state():
    live = EventStream()
    live.publish(LOG, b'{"text":"one"}')
    live.publish(STATE, b'{"t":1}')
    live.publish(STATE, b'{"t":2}')
    assert _heard(live, 2) == [b'event: log\ndata: {"text":"one"}\n\n', b'event: state\ndata: {"t":2}\n\n']


def test_a_closed_listener_is_removed_and_a_slow_one_does_not_delay_others():
    live = EventStream()

    async def run() -> tuple[int, list[bytes]]:
        slow = live.listen()
        live.publish(STATE, b"0")
        await anext(slow)  # and no more
        for number in range(5000):
            live.publish(STATE, str(number).encode())
        fast = live.listen()
        first = await anext(fast)
        live.publish(LOG, b"x")
        await fast.aclose()
        waiting = sum(len(listener.waiting) for listener in live._listeners)
        await slow.aclose()
        return waiting, [first]

    waiting, first = asyncio.run(run())
    assert waiting < 1000
    assert first == [b"event: state\ndata: 4999\n\n"]
    assert not live.has_listeners


def test_close_ends_all_streams():
    live = EventStream()

    async def run() -> list[bytes]:
        heard: list[bytes] = []

        async def listen() -> None:
            heard.extend([part async for part in live.listen()])

        task = asyncio.create_task(listen())
        await asyncio.sleep(0)
        live.publish(STATE, b"1")
        await asyncio.sleep(0)
        await asyncio.to_thread(live.close)
        await asyncio.wait_for(task, 60)
        return heard

    assert asyncio.run(run()) == [b"event: state\ndata: 1\n\n"]
