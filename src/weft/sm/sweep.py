"""A sweep: from whatever is there to a subnet that works. `configure` is the table of contents.

Everything is compared with what is there first: a sweep over a subnet that is as it should be only reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from weft.errors import SubnetError, WeftError
from weft.fabric.kinds import NodeKind
from weft.mad.walk import walk
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import Routing
from weft.sm.discovery.differences import differences, missing_links
from weft.sm.discovery.known import Known, carried_over
from weft.sm.discovery.view import View, make_view, without_links
from weft.sm.events import Event
from weft.sm.mcast.trees import plant_trees, upload_multicast
from weft.sm.pkey.table_upload import choose_pkeys, upload_pkeys
from weft.sm.port_info import activate, arm, wanted_settings
from weft.sm.qos.congestion_upload import set_up_congestion_control
from weft.sm.qos.table_upload import choose_vl_tables, upload_vl_tables
from weft.sm.sa.subscriptions import announce_ports
from weft.sm.state import State
from weft.sm.ucast.adaptive_upload import upload_adaptive
from weft.sm.ucast.forwarding import Uploaded, compute_routes, read_forwarding, upload_forwarding
from weft.sm.ucast.lids import Lids, choose_lids
from weft.wire.port_info import PortState


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a sweep found and did."""

    switches: int
    adapters: int
    links: int
    engine: str
    forwarding: Uploaded
    sets: int  # of PortInfo
    refused: tuple[str, ...]  # ports and switches that did not take what they were told
    oddities: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.switches:,} switches, {self.adapters:,} adapters, {self.links:,} links, {self.engine}, "
            f"{self.forwarding.entries:,} routes changed"
        )


def discover(state: State) -> View:
    """Walk the subnet; what is odd is said, and left out."""
    view = make_view(walk(state.sender, m_key=state.sender.m_key))
    if state.view is not None:
        state.flaps.note(state.view, view, state.clock())
    flapping, why = state.flaps.flapping(view, state.clock())
    if len(flapping):
        view = without_links(view, flapping, why)
    for oddity in view.oddities:
        flaps = oddity.startswith("flapping")
        state.log.say(Event.PORT_FLAPPING if flaps else Event.ODDITY, oddity)
    return view


def configure(state: State, view: View, *, taking_over: bool = False) -> Report:
    """From what was discovered to a subnet that works. `taking_over`: hosts are asked to register anew."""
    sender = state.sender
    view, lids = give_lids(state, view)
    known = carried_over(state.known, view)
    in_use = bool((view.state[view.plugged] == PortState.ACTIVE).any())
    if in_use:
        read_forwarding(sender, view, known)
    view, routing = route_subnet(state, view, known)
    pkeys = choose_pkeys(state, view, known)
    choose_vl_tables(state, view)
    plant_trees(state, view)
    wanted = wanted_settings(view, lids, state.options, enforced=pkeys.enforcement)

    forwarding = upload_forwarding(sender, view, known, in_use=in_use, life_time=state.options.packet_life_time)
    refused = [*forwarding.refused]
    refused += upload_multicast(sender, view, known)
    refused += upload_adaptive(state, view)
    refused += upload_pkeys(sender, view, known, pkeys)
    refused += upload_vl_tables(sender, view, known)
    armed = arm(sender, view, known, wanted, reregister=taking_over and not state.options.no_clients_rereg)
    active = activate(sender, view, wanted, armed.refused)
    refused += [view.name(slot) for slot in np.union1d(armed.refused, active.refused).tolist()]
    for name in refused:
        state.log.say(Event.REFUSED, f"{name} does not take what it is told")

    set_up_congestion_control(state, view, known)
    remember(state, view, known, routing)
    return Report(
        switches=int(view.is_switch.sum()),
        adapters=len(view.fabric.of_kind(NodeKind.HCA)),
        links=len(view.fabric.links),
        engine=routing.engine if routing else "no switch",
        forwarding=forwarding,
        sets=armed.sets + active.sets,
        refused=tuple(refused),
        oddities=view.oddities,
    )


def give_lids(state: State, view: View) -> tuple[View, Lids]:
    """A LID for every port that needs one; ports for which none is left are not used."""
    options = state.options
    first = state.view is None
    lids = choose_lids(
        view,
        state.remembered,
        lmc=options.lmc,
        honor=options.honor_guid2lid_file and first,
        reassign=options.reassign_lids and first,
    )
    if len(lids.without):
        state.log.say(
            Event.NO_LID,
            f"{len(lids.without):,} ports stay without a LID, the first is {view.name(int(lids.without[0]))}: "
            f"a subnet has 49,151, and each adapter takes {1 << options.lmc}; use a smaller lmc",
        )
        view = without_links(view, lids.without, ())
        lids = choose_lids(view, state.remembered, lmc=options.lmc)
    for slot in lids.changed[:10].tolist():
        state.log.say(Event.LID_CHANGED, f"{view.name(slot)} gets LID {lids.lid[slot]}: another port has its LID")
    view.fabric.tables.lid[:] = lids.lid
    view.fabric.tables.set_lmc(slice(None), lids.lmc)
    return view, lids


def route_subnet(state: State, view: View, known: Known) -> tuple[View, Routing | None]:
    """Tables by the first engine of the options that can, at last by any whose tables cannot deadlock."""
    options = state.options
    if not view.is_switch.any():
        return view, None
    anew = state.view is not None and _has_more_links(view, state.view)
    for engine in ("", *options.routing_engine, "auto"):  # "": the one of the last sweep, with its root
        if not engine and (state.routing is None or anew):
            continue
        wanted = RoutingOptions(
            engine=engine,
            lmc=options.lmc,
            max_vls=options.max_vls,
            adaptive=options.adaptive_routing,
            root=_root(state, view),
        )
        before = state.routing if not engine else None
        try:
            routing = state.sender.aside(partial(compute_routes, view, known, wanted, before, anew))
        except WeftError as error:
            state.log.say(Event.ROUTING_FALLBACK, f"{engine or 'as before'}: {error}")
            continue
        return replace(view, fabric=routing.fabric), routing
    raise SubnetError("no routing engine can route this subnet")


def _root(state: State, view: View) -> str:
    """The first switch of root_guid_file that is there; none: the engine finds one."""
    for guid in state.roots:
        node = view.node_of_guid(guid)
        if node is not None and view.is_switch[node]:
            return view.fabric.nodes.name[node]
    return ""


def _has_more_links(view: View, before: View) -> bool:
    """Between switches. One that comes back brings the routes of before back: else nothing would ever use it again."""
    came, ports = missing_links(view, before), view.fabric.ports
    return bool((view.is_switch[ports.node[came]] & view.is_switch[ports.node[ports.peer[came]]]).any())


def remember(state: State, view: View, known: Known, routing: Routing | None) -> None:
    """For the next sweep, and for those who ask."""
    ends = view.end_ports
    state.remembered.update(
        zip(view.fabric.ports.guid[ends].tolist(), view.fabric.tables.lid[ends].tolist(), strict=True)
    )
    if state.view is not None:
        for event, text in differences(state.view, view):
            state.log.say(event, text)
    announce_ports(state, state.view, view)
    state.view, state.known, state.routing = view, known, routing
