"""Sizes next to a request that cost less."""

from __future__ import annotations

from weft.plan.plan import make_plan
from weft.plan.request import Request
from weft.plan.size import size


def test_one_server_more_that_costs_less_is_named() -> None:
    """A Dragonfly+ for 234 hosts has more switches than one for 235."""
    fewer, more = (
        make_plan(size(Request(servers=n, server="host", topology="dragonfly+")), look=True) for n in (234, 235)
    )
    assert fewer.bill.total.low_usd > more.bill.total.low_usd
    saved = fewer.bill.total.high_usd - more.bill.total.high_usd
    (note,) = (note for note in fewer.assumed if "one server more" in note)
    assert note.startswith("The fabric for one server more, 235, costs ")
    assert f"{saved:,.0f} USD less" in note
    assert not any("one server more" in note for note in more.assumed)


def test_a_size_that_costs_less_than_the_next_has_no_note() -> None:
    assert not make_plan(size(Request(servers=32)), look=True).assumed
