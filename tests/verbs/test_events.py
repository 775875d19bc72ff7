"""Asynchronous events: in order, one queue per context, and a wait during which the adapter makes progress."""

from __future__ import annotations

from collections import deque

from tests.verbs.wires import Wire, connected

from weft.verbs.enums import IBV_EVENT_COMM_EST, IBV_EVENT_PORT_ERR, IBV_EVENT_SQ_DRAINED, IBV_QPS_INIT, IBV_QPS_RTR
from weft.verbs.pyverbs.context import Context


def context(wire: Wire, name: str) -> Context:
    result = Context.__new__(Context)
    result.adapter, result.events = getattr(wire, name).adapter, deque()
    return result


def test_events_come_in_order_to_the_context_that_they_are_for():
    wire = Wire()
    first, second = context(wire, "a"), context(wire, "a")
    first.raise_event(IBV_EVENT_PORT_ERR, 1)
    second.raise_event(IBV_EVENT_COMM_EST)
    first.raise_event(IBV_EVENT_SQ_DRAINED, "qp")
    events = [first.get_async_event(), first.get_async_event()]
    assert [(event.event_type, event.element) for event in events] == [
        (IBV_EVENT_PORT_ERR, 1),
        (IBV_EVENT_SQ_DRAINED, "qp"),
    ]
    assert (len(first.events), len(second.events)) == (0, 1)
    assert str(events[0]) == "IBV_EVENT_PORT_ERR 1"


def test_an_event_is_acknowledged_once_or_more():
    wire = Wire()
    ctx = context(wire, "a")
    ctx.raise_event(IBV_EVENT_COMM_EST)
    event = ctx.get_async_event()
    event.ack()
    event.ack()
    assert event.is_acked


def test_waiting_for_an_event_drives_the_adapter():
    wire = Wire()
    near, far = connected(wire)
    ctx = context(wire, "b")
    for state in (IBV_QPS_INIT, IBV_QPS_RTR):  # back to the state where the first request raises an event
        far.state = state
    far.on_event = lambda kind: ctx.raise_event(kind, far)
    wire.a.send(near, 1, 0, 8)
    wire.a.adapter.progress()
    event = ctx.get_async_event()
    assert (event.event_type, event.element) == (IBV_EVENT_COMM_EST, far)
