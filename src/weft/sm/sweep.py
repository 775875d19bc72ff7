"""A sweep: from whatever is there to a subnet that works. `configure` is the table of contents.

Everything is compared with what is there first: a sweep over a subnet that is as it should be only reads.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from weft.errors import SubnetError, WeftError
from weft.fabric.kinds import NodeKind
from weft.ids import Gid, Lid
from weft.mad.walk import walk
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import Routing
from weft.sm.alias_gids import upload_alias_gids
from weft.sm.allocation import adopted, allocation_file, write_runtime_config
from weft.sm.discovery.adjacent import adjacent_prefixes
from weft.sm.discovery.differences import differences, missing_links
from weft.sm.discovery.known import Known, carried_over
from weft.sm.discovery.view import View, make_view, without_links
from weft.sm.events import Event, some
from weft.sm.flids import add_routes, find_flids, upload_flids
from weft.sm.mcast.trees import plant_trees, upload_multicast
from weft.sm.pkey.table_upload import adopt_partitions, choose_pkeys, p_key_differences, read_pkeys, upload_pkeys
from weft.sm.pkey.tables import PKeyTables
from weft.sm.port_info import bring_up, waiting_trunks, wanted_settings
from weft.sm.protection import known_m_key, port_key
from weft.sm.qos.table_upload import choose_vl_tables, upload_vl_tables
from weft.sm.state import State
from weft.sm.ucast.adaptive import upload_adaptive
from weft.sm.ucast.forwarding import Uploaded, compute_routes, read_forwarding, upload_forwarding
from weft.sm.ucast.lids import Lids, choose_lids
from weft.units import format_items
from weft.wire.notice import Trap
from weft.wire.port_info import PortState

Slots = NDArray[np.intp]


class Interrupted(SubnetError):
    """The manager is no longer the one that may write into the devices, or ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a sweep."""

    switches: int
    adapters: int
    links: int
    engine: str
    forwarding: Uploaded
    sets: int  # PortInfo
    refused: tuple[str, ...]  # ports and switches that refused a Set
    oddities: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{format_items(self.switches, 'switch')}, {format_items(self.adapters, 'adapter')}, "
            f"{format_items(self.links, 'link')}, {self.engine}, "
            f"{format_items(self.forwarding.entries, 'route')} changed"
        )


def discover(state: State) -> View:
    """Walk the subnet; what is odd is said, and left out."""
    sender = state.sender
    sender.m_key = known_m_key(state.options)
    view = make_view(walk(sender, timeout_ms=sender.timeout_ms, retries=sender.retries, m_key=sender.m_key))
    if state.view is not None:
        state.flaps.note(state.view, view, state.clock())
    flapping, why = state.flaps.flapping(view, state.clock())
    if len(flapping):
        view = without_links(view, flapping, why)
    view = replace(view, oddities=(*view.oddities, *_equal_prefixes(view, state.options.subnet_prefix)))
    for oddity in view.oddities:
        flaps = oddity.startswith("flapping")
        state.log.say(Event.PORT_FLAPPING if flaps else Event.ODDITY, oddity)
    return view


def _equal_prefixes(view: View, prefix: int) -> list[str]:
    """Report routers to another subnet with the prefix of this one."""
    routers = adjacent_prefixes(view).get(prefix, ())
    return [
        f"equal-prefix: {view.name(slot)} leads to another subnet with the prefix {prefix:#x} of this one: packets do "
        "not cross; give one of the managers another subnet_prefix"
        for slot in routers
    ]


def configure(state: State, view: View, *, taking_over: bool = False) -> Report:
    """Configure a subnet that was discovered. `taking_over`: ask hosts to register with the SA again.

    A link between switches that does not become Active is left out, and the rest is configured again without it.
    """
    sender = state.sender
    view, lids = give_lids(state, view)
    contents = carried_over(state.known, view)
    in_use = bool((view.state[view.plugged] == PortState.ACTIVE).any())
    if in_use:
        read_forwarding(sender, view, contents)
    view, routing = route_subnet(state, view, contents)
    state.flids = find_flids(sender, view, state.options)
    if state.flids is not None:
        add_routes(view, state.flids)
        if len(state.flids.without):
            names = some([view.name(slot) for slot in state.flids.without.tolist()])
            state.log.say_once(Event.NO_LID, f"no floating LID is left for {names}: give a larger local_flid_end")
    pkeys = give_pkeys(state, view, contents)
    if taking_over:
        note_foreign_keys(state, view, contents, pkeys)
    for note in choose_vl_tables(state.qos, view, state.options.max_op_vls):
        state.log.say_once(Event.QOS, note)
    settle_groups(state, view)
    plant_trees(view, state.groups)
    choose_key(state)
    expected = wanted_settings(
        view,
        lids,
        state.options,
        key=state.port_key,
        enforced=pkeys.enforcement,
        flid=None if state.flids is None else state.flids.own,
    )

    refused = upload_pkeys(sender, view, contents, pkeys)
    refused += upload_vl_tables(sender, view, contents)
    trunks = waiting_trunks(view)  # a route that uses them before they are Active would lose packets
    first = bring_up(sender, view, contents, expected, among=trunks)
    unusable = np.flatnonzero(waiting_trunks(view))
    if len(unusable):
        state.known = contents
        return _configure_without(state, view, unusable, first.refused, taking_over)
    forwarding = upload_forwarding(sender, view, contents, in_use=in_use, life_time=state.options.packet_life_time)
    refused += forwarding.refused
    refused += upload_multicast(sender, view, contents)
    if state.options.adaptive_routing:
        state.adaptive, without = upload_adaptive(sender, view, state.adaptive)
        refused += without
    reregister = taking_over and not state.options.no_clients_rereg
    rest = bring_up(sender, view, contents, expected, among=~trunks, reregister=reregister)
    refused += upload_alias_gids(sender, view, contents)
    if state.flids is not None:
        refused += upload_flids(sender, view, state.options, state.flids)
    refused += [view.name(slot) for slot in np.union1d(first.refused, rest.refused).tolist()]
    for name in refused:
        state.log.say(Event.REFUSED, f"{name} refuses its settings")

    if state.options.congestion_control:
        from weft.sm.qos.congestion import set_up_congestion_control  # rarely used

        for name in set_up_congestion_control(sender, view, contents, state.options):
            state.log.say_once(Event.REFUSED, f"{name} does not know congestion control, or has another CC_Key")
    state.lacking = pkeys.lacking
    remember(state, view, contents, routing)
    return Report(
        switches=int(view.is_switch.sum()),
        adapters=len(view.fabric.of_kind(NodeKind.HCA)),
        links=len(view.fabric.links),
        engine=routing.engine if routing else "no switch",
        forwarding=forwarding,
        sets=first.sets + rest.sets,
        refused=tuple(refused),
        oddities=view.oddities,
    )


def _configure_without(state: State, view: View, unusable: Slots, refused: Slots, taking_over: bool) -> Report:
    """Configure the subnet without links that did not become Active; the report names the ports that are to blame."""
    named = np.intersect1d(unusable, refused)
    named = named if len(named) else unusable[view.state[unusable] != PortState.ACTIVE]
    names = [view.name(slot) for slot in named.tolist()]
    notes = tuple(f"refused: {name} does not become Active: routes avoid its link" for name in names)
    for note in notes:
        state.log.say(Event.REFUSED, note.removeprefix("refused: "))
    report = configure(state, without_links(view, unusable, notes), taking_over=taking_over)
    return replace(report, refused=(*names, *report.refused))


def give_lids(state: State, view: View) -> tuple[View, Lids]:
    """Choose a LID for every port that needs one; ports for which none is left are excluded."""
    options = state.options
    first = state.view is None
    lids = choose_lids(
        view,
        state.remembered,
        lmc=options.lmc,
        honor=options.honor_guid2lid_file and first,
        reassign=options.reassign_lids and first,
        floating=options.flids[:2],
    )
    if len(lids.without):
        state.log.say(
            Event.NO_LID,
            f"no LID is left for {format_items(len(lids.without), 'port')}, {view.name(int(lids.without[0]))} first: "
            f"a subnet has 49,151, and each adapter takes {1 << options.lmc}; use a smaller lmc",
        )
        view = without_links(view, lids.without, ())
        lids = choose_lids(view, state.remembered, lmc=options.lmc, floating=options.flids[:2])
    for slot in lids.changed[:10].tolist():
        state.log.say(Event.LID_CHANGED, f"{view.name(slot)} gets LID {lids.lid[slot]}: another port has its LID")
    view.fabric.tables.lid[:] = lids.lid
    view.fabric.tables.set_lmc(slice(None), lids.lmc)
    return view, lids


def route_subnet(state: State, view: View, contents: Known) -> tuple[View, Routing | None]:
    """Route by the first engine of the options that succeeds, else by any engine without deadlock."""
    options = state.options
    if not view.is_switch.any():
        return view, None
    anew = state.view is not None and _has_more_links(view, state.view)
    for engine in ("", *options.routing_engine, "auto"):  # "": the one of the last sweep, with its root
        if not engine and (state.routing is None or anew):
            continue
        routing_options = RoutingOptions(
            engine=engine,
            lmc=options.lmc,
            max_vls=options.max_vls,
            adaptive=options.adaptive_routing,
            root=_root(state, view),
        )
        before = state.routing if not engine else None
        try:
            routing = state.sender.aside(partial(compute_routes, view, contents, routing_options, before, anew))
        except WeftError as error:
            state.log.say(Event.ROUTING_FALLBACK, f"{engine or 'as before'}: {error}")
            continue
        # P_Keys and lanes are not part of the engine's tables, since they change between sweeps.
        return replace(view, fabric=routing.fabric.configured(copy.copy(routing.tables))), routing
    raise SubnetError("no routing engine can route this subnet")


def _root(state: State, view: View) -> str:
    """Return the first present switch of root_guid_file; empty: the engine chooses."""
    for guid in state.roots:
        node = view.node_of_guid(guid)
        if node is not None and view.is_switch[node]:
            return view.fabric.nodes.name[node]
    return ""


def _has_more_links(view: View, before: View) -> bool:
    """Return whether links between switches came back: routes are computed anew then, else they would stay unused."""
    came, ports = missing_links(view, before), view.fabric.ports
    return bool((view.is_switch[ports.node[came]] & view.is_switch[ports.node[ports.peer[came]]]).any())


def give_pkeys(state: State, view: View, contents: Known) -> PKeyTables:
    """Choose the P_Key tables of all ports; a standby that was given no partitions adopts those of the ports first."""
    ends = view.end_ports
    read_pkeys(state.sender, view, contents, ends[~contents.keys[ends]])
    if state.adopts_partitions:
        state.merge(*adopted(adopt_partitions(contents.tables.pkey, view), state.filed))
        state.adopts_partitions = False
        if state.options.state_file is not None:
            write_runtime_config(allocation_file(state.options.state_file), state.told)
        names = ", ".join(partition.label for partition in state.partitions.partitions)
        state.log.say(Event.PARTITIONS, f"no file says which there are: those that ports are in stay, {names}")
    chosen = state.sender.aside(partial(choose_pkeys, state.partitions, state.options, view, contents))
    for note in chosen.notes:
        state.log.say_once(Event.PARTITIONS, note)
    return chosen


def note_foreign_keys(state: State, view: View, contents: Known, pkeys: PKeyTables) -> None:
    """Log the ports to which the previous master gave other P_Keys: until now they were not isolated as configured."""
    slots = np.flatnonzero(contents.keys & pkeys.programmed)
    differences = p_key_differences(view, slots, pkeys.table, contents.tables.pkey)
    if differences:
        state.repaired.extend(differences)
        state.log.say(Event.DRIFT, f"the previous master left other P_Keys: {some(differences)}")


def choose_key(state: State) -> None:
    """Choose the M_Key of ports, and use it in our own SMPs."""
    state.port_key = port_key(state.options, state.partitions, state.log)
    state.sender.m_key = state.port_key.m_key or state.sender.m_key


def settle_groups(state: State, view: View) -> None:
    """Update multicast groups after ports came and went."""
    groups, options = state.groups, state.options
    for group in groups.settle(view, state.partitions, life_time=options.subnet_timeout):
        state.log.say(Event.MULTICAST, f"group {Gid(group.mgid)} ends: its last member is gone")
        ended = (view, Trap.MGID_DESTROYED, group.mgid, group.p_key, options.subnet_prefix)
        state.subscriptions.announce_group(*ended)
    for mgid in groups.without_mlid:
        room = groups.last_mlid - Lid.FIRST_MULTICAST + 1
        state.log.say_once(Event.MULTICAST, f"no MLID is left for group {Gid(mgid)}: switches have {room:,}")


def remember(state: State, view: View, contents: Known, routing: Routing | None) -> None:
    """Store the results for the next sweep and for requests."""
    ends = view.end_ports
    state.remembered.update(
        zip(view.fabric.ports.guid[ends].tolist(), view.fabric.tables.lid[ends].tolist(), strict=True)
    )
    if state.view is not None:
        for event, text in differences(state.view, view):
            state.log.say(event, text)
    state.subscriptions.settle(view, drop=state.options.drop_event_subscriptions)
    state.subscriptions.announce_ports(state.view, view, state.options.subnet_prefix)
    state.view, state.known, state.routing, state.drift = view, contents, routing, ()
