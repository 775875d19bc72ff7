"""A change of partitions and lanes between two sweeps: nothing is discovered, nothing routed, only differences written.

    what is wanted now  -> P_Key tables, checks at switches, groups, lanes  -> compared with what is in the devices

`reallocate` is all or nothing. A port that does not take its part, or does not answer, is looked at by a sweep: one
that is gone needs nothing until it comes back, and gets it then; one that is there and refuses ends the change, and
everything becomes what it was.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from weft.errors import ConfigError, SubnetError, WeftError
from weft.sm.allocation import RuntimeConfig
from weft.sm.conf.qos_options import Qos, QosOptions
from weft.sm.discovery.view import View
from weft.sm.events import Event
from weft.sm.mcast.trees import reprogram
from weft.sm.pkey.table_upload import upload_pkeys
from weft.sm.port_info import arm, enforced, wanted_settings
from weft.sm.qos.table_upload import choose_vl_tables, upload_vl_tables
from weft.sm.state import State
from weft.sm.sweep import Interrupted, Report, choose_key, give_pkeys, settle_groups
from weft.sm.ucast.lids import Lids

_NAMED = 4
_ONE_LANE = Qos.of(QosOptions(sl2vl=(0,) * 16))  # ports whose lanes are removed
_NONE = np.zeros(0, np.intp)


def reallocate(
    state: State, runtime: RuntimeConfig, keep: Callable[[], None], sweep: Callable[[], Report | None]
) -> None:
    """Write the new configuration to the devices and `keep` it; on an error everything is as before.

    `sweep` looks at the whole subnet; None if it failed.
    """
    before, filed = state.told, state.filed
    state.merge(filed, runtime)
    try:
        refused = _program_or_sweep(state, sweep, lanes=runtime.qos != before.qos)
        if refused:
            more = f" and {len(refused) - _NAMED:,} more" if len(refused) > _NAMED else ""
            raise SubnetError(
                f"{', '.join(refused[:_NAMED])}{more} did not take the change: all is as before; see the manager's log"
            )
        keep()
    except Interrupted:  # the devices are another's
        state.merge(filed, before)
        raise
    except WeftError:
        state.merge(filed, before)
        _program_or_sweep(state, sweep, lanes=runtime.qos != before.qos)
        raise


def _program_or_sweep(state: State, sweep: Callable[[], Report | None], *, lanes: bool) -> list[str]:
    """Program the devices, or sweep if that fails; return the present ports that refused."""
    if not program(state, lanes=lanes):
        return []
    report = sweep()
    if report is None:
        raise SubnetError("the subnet cannot be swept: see the manager's log")
    return list(report.refused)


def program(state: State, *, lanes: bool) -> list[str]:
    """Write the current partitions to the devices of the last sweep; return those that refused or did not answer.

    `lanes`: they may have changed too.
    """
    sender, contents, options = state.sender, state.known, state.options
    assert state.view is not None, "the manager has not swept"
    assert contents is not None, "the manager is not master"
    view = _with_fresh_tables(state, state.view, lanes=lanes)
    pkeys = give_pkeys(state, view, contents)
    lacking = [note for note in pkeys.lacking if note not in state.lacking]
    if lacking:
        raise ConfigError(f"{lacking[0]}: all is as before")
    if lanes:
        _choose_lanes(state, view)
    settle_groups(state, view)
    refused = upload_pkeys(sender, view, contents, pkeys)
    if lanes:
        refused += upload_vl_tables(sender, view, contents)
    before = state.port_key
    choose_key(state)
    if lanes or (enforced(view) != pkeys.enforcement).any() or state.port_key != before:
        tables = view.fabric.tables
        lids = Lids(lid=tables.lid.astype(np.int32), lmc=tables.lmc, changed=_NONE, without=_NONE)
        expected = wanted_settings(view, lids, options, key=state.port_key, enforced=pkeys.enforcement)
        refused += [view.name(slot) for slot in arm(sender, view, contents, expected).refused.tolist()]
    state.view, state.lacking = view, pkeys.lacking
    return refused + reprogram(sender, view, contents, state.groups)


def _choose_lanes(state: State, view: View) -> None:
    assert state.view is not None, "it has swept"
    had_lanes = "sl2vl" in vars(state.view.fabric.tables)
    qos = _ONE_LANE if state.qos is None and had_lanes else state.qos
    for note in state.sender.aside(partial(choose_vl_tables, qos, view, state.options.max_op_vls)):
        state.log.say_once(Event.QOS, note)


def _with_fresh_tables(state: State, view: View, *, lanes: bool) -> View:
    """Return the view with its routes and fresh tables for P_Keys and lanes; readers keep the old ones."""
    tables = copy.copy(view.fabric.tables)
    if lanes:
        tables.port_info = tables.port_info.copy()
        engine = {} if state.routing is None else vars(state.routing.tables)
        for name in ("sl2vl", "vl_arbitration"):  # the engine's, if it needs lanes against deadlock
            vars(tables).pop(name, None)
            if name in engine:
                setattr(tables, name, engine[name])
    return replace(view, fabric=view.fabric.configured(tables))
