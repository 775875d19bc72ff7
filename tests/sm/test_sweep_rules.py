"""Decisions of a sweep: LIDs, routing engines, links that stay down, and the data kept for the next sweep."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.sm.conftest import Net

from weft.errors import ConfigError, SubnetError
from weft.mad.walk import walk
from weft.sm import sweep
from weft.sm.conf.options import Options
from weft.sm.discovery.known import carried_over
from weft.sm.discovery.view import View, make_view
from weft.sm.events import Event, Log
from weft.sm.mcast.groups import Groups
from weft.sm.protection import PortKey
from weft.sm.state import State
from weft.sm.ucast.lids import Lids
from weft.wire.bulk import fill
from weft.wire.port_info import PortInfo, PortState
from weft.wire.sa import MCMemberRecord


class Sender:
    """A sender that computes in the same thread."""

    m_key = 0

    def aside(self, work: Any) -> Any:
        return work()


@pytest.fixture(scope="module")
def discovered() -> View:
    view = make_view(walk(Net("fat-tree:hosts=4,radix=4,levels=2")))
    fill(view.port_info, PortInfo.port_state, int(PortState.ACTIVE))
    return view


def state_with(**options: Any) -> State:
    sender: Any = Sender()
    return State(options=Options(**options), sender=sender, log=Log(io.StringIO(), clock=lambda: 0.0))


def said(state: State, event: Event) -> list[str]:
    return [line.partition(f" {event} ")[2] for line in state.log.recent if f" {event} " in line]


# -- LIDs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(("honor", "reassign"), [(True, False), (False, True), (False, False)])
def test_options_about_lids_of_before_count_at_the_first_sweep_only(monkeypatch, discovered, is_first, honor, reassign):
    state, calls = state_with(honor_guid2lid_file=honor, reassign_lids=reassign, lmc=1), []
    state.view = None if is_first else discovered
    choose_lids = sweep.choose_lids
    monkeypatch.setattr(sweep, "choose_lids", lambda *words, **more: calls.append(more) or choose_lids(*words, **more))
    view, lids = sweep.give_lids(state, discovered)
    assert calls == [{"lmc": 1, "honor": honor and is_first, "reassign": reassign and is_first, "floating": (0, 0)}]
    assert (view.fabric.tables.lid == lids.lid).all()
    assert (view.fabric.tables.lmc == lids.lmc).all()
    assert not state.log.recent


def test_ten_ports_that_get_another_lid_are_named(monkeypatch, discovered):
    slots = np.repeat(discovered.end_ports, 3)[:12]
    lid = np.arange(len(discovered.fabric.ports)).astype(np.int32)
    lids = Lids(lid=lid, lmc=np.zeros(len(lid), np.uint8), changed=slots, without=slots[:0])
    monkeypatch.setattr(sweep, "choose_lids", lambda *_, **__: lids)
    state = state_with()
    sweep.give_lids(state, discovered)
    texts = said(state, Event.LID_CHANGED)
    assert len(texts) == 10
    assert texts[0] == f"{discovered.name(slots[0])} gets LID {slots[0]}: another port has its LID"


# -- routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engines", "has_routing", "is_anew", "fails", "tried"),
    [
        (("auto",), False, False, (), ["auto"]),
        (("auto",), True, False, (), [""]),
        (("auto",), True, True, (), ["auto"]),
        (("up-down", "fat-tree"), False, False, (), ["up-down"]),
        (("up-down", "fat-tree"), True, False, ("", "up-down"), ["", "up-down", "fat-tree"]),
        (("up-down",), True, True, ("up-down",), ["up-down", "auto"]),
    ],
)
def test_engines_are_tried_in_their_order(monkeypatch, discovered, engines, has_routing, is_anew, fails, tried):
    state, calls = state_with(routing_engine=engines, lmc=1, max_vls=4), []
    earlier: Any = SimpleNamespace(engine="as before")
    state.routing, state.view = earlier if has_routing else None, discovered
    monkeypatch.setattr(sweep, "_has_more_links", lambda *_: is_anew)

    def compute(view: View, contents: object, options: Any, before: object, anew: bool) -> Any:
        calls.append((options.engine, before, anew))
        assert (options.lmc, options.max_vls, options.adaptive, options.root) == (1, 4, False, "")
        if options.engine in fails:
            raise ConfigError("it cannot")
        return SimpleNamespace(fabric=view.fabric, tables=view.fabric.tables, engine=options.engine)

    monkeypatch.setattr(sweep, "compute_routes", compute)
    view, routing = sweep.route_subnet(state, discovered, carried_over(None, discovered))
    assert [engine for engine, *_ in calls] == tried
    assert all((before is earlier) == (engine == "") for engine, before, _ in calls)
    assert {anew for *_, anew in calls} == {is_anew}
    assert routing is not None
    assert routing.engine == tried[-1]
    assert view.fabric.tables is not discovered.fabric.tables
    assert said(state, Event.ROUTING_FALLBACK) == [f"{engine or 'as before'}: it cannot" for engine in tried[:-1]]


def test_a_subnet_that_no_engine_can_route_is_an_error(monkeypatch, discovered):
    def fail(*_: object) -> None:
        raise SubnetError("no")

    monkeypatch.setattr(sweep, "compute_routes", fail)
    state = state_with(routing_engine=("up-down",))
    with pytest.raises(SubnetError, match="no routing engine can route this subnet"):
        sweep.route_subnet(state, discovered, carried_over(None, discovered))
    assert len(said(state, Event.ROUTING_FALLBACK)) == 2


# -- links that do not become Active ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_refused", [True, False])
def test_links_that_stay_down_are_left_out_and_the_ports_to_blame_are_named(monkeypatch, discovered, is_refused):
    """A port that refused its settings is to blame, else those that are not Active."""
    ports = discovered.fabric.ports
    both = discovered.is_switch[ports.node[np.stack((discovered.plugged, ports.peer[discovered.plugged]))]].all(axis=0)
    trunk = int(discovered.plugged[both][0])
    ends = np.array(sorted((trunk, int(ports.peer[trunk]))))
    infos = discovered.port_info.copy()
    PortInfo.port_state.set(infos[ends[0]], int(PortState.ARMED))
    view = sweep.replace(discovered, port_info=infos)
    configured = []

    def configure(state: State, view: View, *, taking_over: bool) -> Any:
        configured.append((len(view.fabric.links), view.oddities, taking_over))
        return sweep.Report(
            switches=1,
            adapters=1,
            links=1,
            engine="",
            forwarding=None,
            sets=0,
            refused=("h1/1",),
            oddities=(),  # type: ignore[arg-type]
        )

    monkeypatch.setattr(sweep, "configure", configure)
    state, guilty = state_with(), ends[1 if is_refused else 0]
    refused = np.array([guilty] if is_refused else [], np.intp)
    report = sweep._configure_without(state, view, ends, refused, True)
    name = discovered.name(guilty)
    assert report.refused == (name, "h1/1")
    ((links, oddities, taking_over),) = configured
    assert (links, taking_over) == (len(discovered.fabric.links) - 1, True)
    assert oddities[-1] == f"refused: {name} does not become Active: routes avoid its link"
    assert said(state, Event.REFUSED) == [f"{name} does not become Active: routes avoid its link"]


# -- keys, groups and kept data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("made", "known", "used"), [(7, 3, 7), (0, 3, 3), (0, 0, 0)])
def test_the_key_of_ports_is_used_in_own_smps_and_one_that_devices_still_have_is_kept(monkeypatch, made, known, used):
    state = state_with()
    state.sender.m_key = known
    monkeypatch.setattr(sweep, "port_key", lambda *_: PortKey(made, 1, 2))
    sweep.choose_key(state)
    assert (state.port_key, state.sender.m_key) == (PortKey(made, 1, 2), used)


def test_groups_that_end_are_logged_and_those_without_an_mlid_once(monkeypatch, discovered):
    state, announced = state_with(), []
    ended = Groups().create(MCMemberRecord(mgid=5, p_key=0x8001))

    def settle(self: Groups, *_: object, **more: int) -> list[Any]:
        assert more == {"life_time": state.options.subnet_timeout}
        self.without_mlid, self.last_mlid = [9], 0xC003
        return [ended]

    monkeypatch.setattr(Groups, "settle", settle)
    monkeypatch.setattr(type(state.subscriptions), "announce_group", lambda _, *words: announced.append(words[1:4]))
    for _ in range(2):
        sweep.settle_groups(state, discovered)
    assert [mgid for _, mgid, _ in announced] == [5, 5]
    ends = [text for text in said(state, Event.MULTICAST) if "ends: its last member is gone" in text]
    lacks = [text for text in said(state, Event.MULTICAST) if text.endswith("switches have 4")]
    assert (len(ends), len(lacks)) == (2, 1)


def test_the_results_of_a_sweep_are_kept_for_the_next(monkeypatch, discovered):
    state: Any = state_with()
    state.drift, told = ("h1/1",), []
    contents = carried_over(None, discovered)
    discovered.fabric.tables.lid[discovered.end_ports] = np.arange(1, len(discovered.end_ports) + 1)
    appeared = [(Event.NODE_APPEARED, "h9")]
    monkeypatch.setattr(sweep, "differences", lambda before, now: told.append(before) or iter(appeared))
    sweep.remember(state, discovered, contents, None)
    assert (state.view, state.known, state.routing, state.drift) == (discovered, contents, None, ())
    assert told == []
    guids = discovered.fabric.ports.guid[discovered.end_ports].tolist()
    assert state.remembered == dict(zip(guids, range(1, len(guids) + 1), strict=True))
    sweep.remember(state, discovered, contents, None)
    assert (told, said(state, Event.NODE_APPEARED)) == ([discovered], ["h9"])


@pytest.mark.parametrize(
    ("roots", "root"),
    [([], ""), ([1], ""), (["h1"], ""), (["leaf1"], "leaf1"), ([1, "h1", "leaf2", "leaf1"], "leaf2")],
)
def test_the_root_is_the_first_of_the_list_that_is_a_switch(discovered, roots, root):
    guid_of = dict(zip(discovered.fabric.nodes.name, discovered.fabric.nodes.guid.tolist(), strict=True))
    state = state_with()
    state.roots = tuple(guid_of.get(each, 1) for each in roots)
    assert sweep._root(state, discovered) == root
