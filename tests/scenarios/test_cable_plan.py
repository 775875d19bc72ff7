"""The wrong end of the row: the document's hundred cables, counted and priced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.scenarios import cable_plan
from weft.scenarios.cable_plan import A100, END, H100, HOSTS, MIDDLE, SEARCHED, TOP
from weft.scenarios.finding import Finding


@pytest.fixture(scope="module")
def finding() -> Finding:
    return cable_plan.run()


def test_a_hundred_optical_cables_at_200_usd(finding: Finding) -> None:
    """Every cable to a server is optical at the end of the row, none is amid the servers: 20,000 USD or 5 to 10,000."""
    places = finding.figures[HOSTS]
    assert [places[where]["server_optical"] for where in (END, TOP, MIDDLE)] == [100, 45, 0]
    assert places[END]["server_m"][0] > 2 >= places[MIDDLE]["server_m"][1]
    saved = [a - b for a, b in zip(places[END]["usd"], places[MIDDLE]["usd"], strict=True)]
    assert saved == [100 * (200 - 50), 100 * (200 - 100)]
    assert "100 active optical cables for 20,000 USD" in finding.finding


def test_where_no_rack_holds_a_unit_the_end_of_the_row_costs_metres_alone(finding: Finding) -> None:
    places = finding.figures[A100]
    assert places[END]["server_optical"] == places[MIDDLE]["server_optical"] == 160
    assert places[END]["usd"] == places[MIDDLE]["usd"]
    assert places[END]["metres"] > places[MIDDLE]["metres"]


def test_a_search_is_never_dearer_in_optics_than_the_best_place(finding: Finding) -> None:
    for places in finding.figures.values():
        optics = {where: each["server_optical"] + each["switch_optical"] for where, each in places.items()}
        assert optics[SEARCHED] <= min(optics.values())
        assert all(sum(each["links"].values()) == each["copper"] + optics[where] for where, each in places.items())


def test_an_ndr_pod_pays_for_the_end_of_the_row_between_switches(finding: Finding) -> None:
    """Both ports of a cage of a DGX H100 lead to different leaves: its cables are optical wherever leaves stand."""
    places = finding.figures[H100]
    assert {each["server_optical"] for each in places.values()} == {256}
    assert places[MIDDLE]["switch_optical"] == 0 < places[END]["switch_optical"]
    assert min(a - b for a, b in zip(places[END]["usd"], places[MIDDLE]["usd"], strict=True)) > 20_000


@pytest.mark.parametrize("wrong", [{"servers": 0}, {"units": 5}])
def test_values_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="must be 1"):
        cable_plan.run(**wrong)


def test_a_search_starts_from_the_place_with_the_fewest_optical_cables(monkeypatch):
    optical = {cable_plan.END: 9, cable_plan.TOP: 3, cable_plan.MIDDLE: 5}
    started = []

    def plan(room: object) -> Any:
        place = next(place for place, each in cable_plan._ROOMS.items() if each is room)
        return SimpleNamespace(optical=np.arange(20) < optical[place], racks=place)

    monkeypatch.setattr(cable_plan, "load", lambda spec: spec)
    monkeypatch.setattr(cable_plan, "place", lambda fabric, room: room)
    monkeypatch.setattr(cable_plan, "cable", plan)

    def search(racks: str, prices: object, *, seed: int) -> Any:
        started.append((racks, seed))
        return SimpleNamespace(after=plan(cable_plan._ROOMS[racks]))

    monkeypatch.setattr(cable_plan, "optimise", search)
    monkeypatch.setattr(cable_plan, "_count", lambda plan, prices: {"optical": int(plan.optical.sum())})
    places = cable_plan._places("x", None, 7)  # type: ignore[arg-type]
    assert started == [(cable_plan.TOP, 7)]
    optical[cable_plan.SEARCHED] = 3
    assert places == {place: {"optical": count} for place, count in optical.items()}
