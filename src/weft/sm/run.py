"""A subnet manager at work: sweeps when they are due, and answers everybody in between.

    manager = SubnetManager(carrier, Options(sm_priority=3))
    manager.run()                       until `stop`, from any thread or signal

One thread. Long work, thousands of MADs or routing, calls `_serve` every few milliseconds: hosts get their paths and a
standby its answer during a sweep. SMInfo and traps come first, then SA requests; tables are made in another thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import ConfigError, WeftError
from weft.mad.carrier import Address, Arrived, Carrier
from weft.mad.walk import DATA
from weft.sm.conf.options import Options
from weft.sm.configuration import load_configuration, was_given_partitions
from weft.sm.control_server import ControlServer, socket_of
from weft.sm.discovery.differences import Flaps
from weft.sm.discovery.view import View, changes, switch_changes
from weft.sm.drift import DriftChecks
from weft.sm.events import Event, Log
from weft.sm.flids import check_ranges
from weft.sm.inform.traps import SETTLE_S, TrapLimit, asks_for_handover, repress, take_trap
from weft.sm.mcast.trees import reprogram
from weft.sm.protection import known_m_key, own_sa_key
from weft.sm.sa.requests import Requests
from weft.sm.sender import Sender, attach, get_own
from weft.sm.sminfo.election import Election
from weft.sm.sminfo.replication import Replication, load_replica
from weft.sm.sminfo.sm_info import Action, OtherSm, Question, Questions, find_others, is_sm_info, own_port
from weft.sm.state import State
from weft.sm.status import Writing, describe, dump_tables, is_own, read_status, write_status
from weft.sm.sweep import Interrupted, Report, configure, discover
from weft.units import format_items
from weft.wire.mad import Method, MgmtClass
from weft.wire.notice import Trap
from weft.wire.port_info import PortInfo
from weft.wire.smp import Smp, SmpAttribute, SMState

if TYPE_CHECKING:
    from weft.sm.sa.administrator import Administrator

_NAP_S = 0.25  # the longest wait: signals are heard after it at the latest
_TRY_AGAIN_S = 1.0  # after a sweep that failed
_REPORT_MS = 1000
_SLICE_S = 0.05  # for the SA, between two looks at a sweep
_LOOK_S = 0.01


class SubnetManager:
    """A subnet manager at one port; `state` may be read between two calls of `step`."""

    def __init__(
        self,
        carrier: Carrier,
        options: Options | None = None,
        *,
        log: Log | None = None,
        clock: Callable[[], float] = time.monotonic,
        dump: Path | None = None,
        subnet: str = "",
    ) -> None:
        options = options or Options()
        check_ranges(options)
        self.carrier, self.options, self.dump = carrier, options, dump
        self.subnet = subnet  # its title for users: lab mine, ibsim sim
        self.state = State(
            options=options,
            log=log or Log(),
            clock=clock,
            sender=Sender(
                carrier,
                timeout_ms=options.transaction_timeout_ms,
                retries=options.transaction_retries,
                m_key=known_m_key(options),
                between=self._serve,
            ),
            flaps=Flaps(limit=options.flap_limit, window_s=options.flap_window_s),
        )
        self._requests = Requests(clock=clock, say=self.state.log.say, timeout_s=options.max_msg_fifo_timeout_ms / 1000)
        self._writing = Writing(self.state.log)
        self.report: Report | None = None  # the last finished sweep
        self.sweeps, self.seconds, self.mads = 0, 0.0, 0  # so far; and of the last
        self._questions = Questions(carrier)
        self._sweep_s, self._check_s, self._light_s = -math.inf, math.inf, math.inf  # when they are due
        self._suspects: set[int] = set()  # LIDs of switches that sent a trap
        self._taking_over = self._configuring = self._is_sweeping = self._reload = self._stopped = False
        self._drift_checks, self._trap_limit = DriftChecks(self.state), TrapLimit(clock)
        self._control_server = ControlServer(self, self._sweep_now, self._drift_checks.check)

    @cached_property
    def administrator(self) -> Administrator:
        """The subnet administrator, imported on first use: it has nothing to answer before the first sweep."""
        from weft.sm.sa.administrator import Administrator

        return Administrator(self.state)

    # -- from outside -----------------------------------------------------------------------------------------------

    def run(self, *, once: bool = False, then: Callable[[], None] | None = None) -> bool:
        """Run until `stop`; `once`: until the subnet is up or another manager is master. Return whether it is up.

        `then` is called once, when there is nothing else to do.
        """
        self.open()
        try:
            while not self._stopped:
                self.step()
                if once and (self.report is not None or self.election.state == SMState.STANDBY):
                    break
                if then is not None and min(self._sweep_s, self._check_s) > self.state.clock() + _NAP_S:
                    then()
                    then = None
        finally:
            self.close()
        return self.report is not None

    def stop(self) -> None:
        self._stopped = True

    def reload(self) -> None:
        """Read the files again, and sweep; a file that cannot be used leaves all as it was."""
        self._reload, self._sweep_s = True, -math.inf

    def open(self) -> None:
        load_configuration(self.state)
        options, state = self.options, self.state
        before = read_status(options.state_file) if options.state_file else None
        if before is not None:
            state.remembered.update({int(guid, 16): lid for guid, lid in before.lids.items()})
        self.election = Election(
            options,
            guid=attach(self.carrier, state.sender.m_key),
            clock=state.clock,
            say=state.log.say,
            mads_sent=lambda: state.sender.mads,
            m_key=lambda: state.sender.m_key,
        )
        self.replication = Replication(
            clock=state.clock,
            say=state.log.say,
            sa_key=lambda: own_sa_key(options, state.sender.m_key),
            changed=self._write_status,
        )
        if options.state_file is not None:
            path = socket_of(options.state_file)
            self._writing.attempt(f"the socket {path}", partial(self._control_server.open, path))
            if self._control_server.bell >= 0:
                self.carrier.watch(self._control_server.bell)
        self.carrier.set_is_sm(True)
        state.log.say(Event.STARTED, f"GUID 0x{self.election.guid:016x}, priority {options.sm_priority}")

    def close(self) -> None:
        self._control_server.close()
        self.state.log.say(
            Event.STOPPED, f"after {format_items(self.sweeps, 'sweep')}, {format_items(self.state.sender.mads, 'MAD')}"
        )
        with suppress(WeftError):  # the subnet may be gone
            self.carrier.set_is_sm(False)
        if self.options.state_file is not None and is_own(self.options.state_file):
            self._write_status("stopped")

    # -- one round --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Sweep if a sweep is due, else handle messages until the next."""
        now_s = self.state.clock()
        if self._reload:
            self._read_files()
        if now_s >= self._sweep_s and self.election.state in (SMState.DISCOVERING, SMState.MASTER):
            self._sweep()
        elif now_s >= self._check_s and self.election.state == SMState.MASTER:
            self._check()
        elif now_s >= self._light_s and self.election.state == SMState.MASTER:
            self._look()
        if (
            self._control_server.is_called() and self.election.state != SMState.DISCOVERING
        ):  # it will be master, or know the master
            self._carry_out()
        next_s = min(self._sweep_s, self._check_s, self._light_s, self.election.next_due_s(), now_s + _NAP_S)
        next_s = min(next_s, self.replication.next_due_s(self.election.master))
        if self.election.lacks_lids:
            self._ask_own_port()
        if self.election.state == SMState.STANDBY:
            self.state.sender.m_key = known_m_key(self.options)  # the master may have made one
        self._serve(max(0.0, next_s - self.state.clock()))
        state = self.state
        if self.election.state == SMState.MASTER and state.view is not None and state.known is not None:
            reprogram(state.sender, state.view, state.known, state.groups)

    def _read_files(self) -> None:
        self._reload = False
        try:
            load_configuration(self.state)
        except ConfigError as error:
            self.state.log.say(Event.SWEEP_FAILED, f"{error}; what was read before stays")

    def _carry_out(self) -> None:
        """Execute the changes that clients of the socket requested."""
        self._configuring = self.election.state == SMState.MASTER
        try:
            self._control_server.carry_out()
        finally:
            self._configuring = False

    # -- sweeps -----------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        state, began_s, mads = self.state, self.state.clock(), self.state.sender.mads
        self._sweep_s = math.inf  # whatever happens from now on makes another one due
        self._is_sweeping = True
        try:
            view = discover(state)
            other_managers, silent = find_others(state.sender, view, state.log.say)
            before = self.election.state
            if self._obey(self.election.found_others(other_managers, own_port(view), silent)) is not Action.CONFIGURE:
                return
            if before != SMState.MASTER or self._taking_over:
                self._take_over(view)
            self._configuring = True
            report = configure(state, view, taking_over=self._taking_over)
        except WeftError as error:
            state.log.say(Event.SWEEP_FAILED, str(error))
            self._sweep_s = state.clock() + _TRY_AGAIN_S
            return
        finally:
            self._configuring = self._is_sweeping = False
        self._swept(report, other_managers, state.clock() - began_s, state.sender.mads - mads)

    def _sweep_now(self) -> Report | None:
        """Sweep while a command is executed."""
        before = self.report
        self._sweep()
        self._configuring = True
        self._stop_if_not_master()
        return self.report if self.report is not before else None

    def _take_over(self, view: View) -> None:
        """Load the tables that were copied from the previous master.

        The partitions of the ports are adopted only by a manager that was given none: the previous master may have been
        a stranger that erased them.
        """
        load_replica(self.state, view, self.replication.take())
        self.state.adopts_partitions = self._taking_over and not was_given_partitions(self.state)

    def _swept(self, report: Report, other_managers: list[OtherSm], seconds: float, mads: int) -> None:
        state = self.state
        self.report, self.sweeps, self._taking_over = report, self.sweeps + 1, False
        self.seconds, self.mads = seconds, mads
        state.log.say(Event.SUBNET_UP, f"SUBNET UP: {report}, {seconds:.2f} s, {format_items(mads, 'MAD')}")
        self.administrator.is_master = True
        self.administrator.other_managers = tuple(other.record() for other in other_managers)
        if self.sweeps == 1:  # kernels may have to be compiled: a standby must not wait for that
            another = type(self.administrator)(state)
            another.is_master = True
            state.sender.aside(another.prepare)
        if report.refused or any(oddity.startswith(("silent", "changed")) for oddity in report.oddities):
            self._sweep_s = min(self._sweep_s, state.clock() + max(_TRY_AGAIN_S, self.options.sweep_interval_s))
        self._sweep_s = min(self._sweep_s, state.flaps.next_due_s())
        self._light_s = self._next_look_s()
        if self.dump is not None and state.view is not None:
            self._writing.attempt(f"dumps in {self.dump}", partial(dump_tables, state.view.fabric, self.dump))
        self._write_status()

    def _look(self) -> None:
        """Do a light sweep, and schedule a heavy one if it finds a change."""
        state = self.state
        state.services.expire(state.clock())
        changed = "every sweep is a heavy one" if self.options.force_heavy_sweep else ""
        if state.view is not None:
            changed = changed or changes(state.sender, state.view) or self._drift_checks.reason_to_sweep()
        self._sweep_if(changed)
        self._light_s = self._next_look_s()

    def _next_look_s(self) -> float:
        interval_s = self.options.sweep_interval_s
        return self.state.clock() + interval_s if interval_s else math.inf

    # -- others -----------------------------------------------------------------------------------------------------

    def _serve(self, wait_s: float) -> None:
        """Take what comes within so long, and answer the SA's for a while. Called in the middle of sweeps too."""
        self._hear(min(wait_s, _LOOK_S) if self._requests else wait_s)
        until_s = self.state.clock() + _SLICE_S
        while self._requests and self._requests.answer_next(self.administrator.answer, self.state.sender):
            self._hear(0.0)
            if self.state.clock() >= until_s:
                break

    def _hear(self, wait_s: float) -> None:
        """Handle answers, other managers and traps; queue requests to the SA."""
        for action in self._questions.poll(wait_s):
            self._obey(action)
        for arrived in self.carrier.arrivals():
            self._on_arrival(arrived)
        now_s = self.state.clock()
        for question in (*self.election.due(now_s), *self.replication.due(now_s, self.election.master)):
            self._questions.ask(question)
        for mad, address in self.state.subscriptions.take():
            heard = partial(self._on_report_response, address)
            self._questions.ask(Question(mad=mad, to=address, timeout_ms=_REPORT_MS, retries=3, heard=heard))
        self._stop_if_not_master()

    def _stop_if_not_master(self) -> None:
        if self._configuring and self.election.state != SMState.MASTER:
            raise Interrupted("another subnet manager became master in the middle of the sweep")
        if self._configuring and self._stopped:
            raise Interrupted("told to end in the middle of the sweep")

    def _on_arrival(self, arrived: Arrived) -> None:
        mad, response = arrived.mad, None
        if mad[1] == MgmtClass.SUBN_ADM:
            response = self._requests.put(arrived)
        elif is_sm_info(mad):
            response, action = self.election.on_sm_info(mad, arrived.source)
            self._obey(action)
        elif mad[3] == Method.TRAP and Smp.attribute_id.get(mad) == SmpAttribute.NOTICE:
            state = self.state
            trap = take_trap(mad, arrived.source.lid, state.view, state.subscriptions, state.log, self.options)
            if trap is not None:
                response = repress(mad)
                self._on_trap(*trap, asks_for_handover(mad))
        if response is not None:
            self.carrier.post(response, arrived.source)

    def _on_trap(self, number: int | None, lid: int, asks_for_handover: bool) -> None:
        """Schedule a check of a switch whose link changed, or a sweep for other changes, such as a new manager."""
        if not self.options.sweep_on_trap or self.election.state != SMState.MASTER:
            return
        if number == Trap.LINK_STATE_CHANGED and self._is_sweeping:
            # This sweep may have read that port before it changed, and will clear the switch's note of the change.
            self._sweep_s = min(self._sweep_s, self.state.clock() + SETTLE_S)
        elif number == Trap.LINK_STATE_CHANGED:
            self._suspects.add(lid)
            self._check_s = min(self._check_s, self.state.clock() + SETTLE_S)
        elif asks_for_handover or (number == Trap.LOCAL_CHANGES and lid != self.state.sm_lid):
            self._sweep_s = min(
                self._sweep_s, self.state.clock() + self._trap_limit.delay_s(0 if asks_for_handover else lid)
            )

    def _check(self) -> None:
        """Sweep if a switch that sent a trap has changed since the last one."""
        state, lids, self._check_s = self.state, sorted(self._suspects), math.inf
        self._suspects.clear()
        if state.view is None:
            return
        at = state.view.end_ports[np.isin(state.view.fabric.tables.lid[state.view.end_ports], lids)]
        nodes = np.unique(state.view.fabric.ports.node[at]).astype(np.intp)
        nodes = nodes[state.view.is_switch[nodes]]
        changed = "an unknown node sent a trap" if len(nodes) < len(lids) else ""
        self._sweep_if(changed or switch_changes(state.sender, state.view, nodes))

    def _sweep_if(self, changed: str) -> None:
        if changed:
            self.state.log.say(Event.SWEEP_STARTED, changed)
            self._sweep_s = -math.inf

    def _ask_own_port(self) -> None:
        """Query the master's LID from our own port: its tables are requested by LID."""
        port_info = get_own(SmpAttribute.PORT_INFO, self.state.sender.m_key)
        self._questions.ask(Question(mad=port_info, timeout_ms=_REPORT_MS, heard=self._on_own_port))

    def _on_own_port(self, answer: bytes | None) -> Action:
        if answer is not None and (lid := PortInfo.master_sm_lid.get(answer, DATA)):
            self.election.has_lids(lid, PortInfo.lid.get(answer, DATA))
        return Action.NOTHING

    def _on_report_response(self, address: Address, answer: bytes | None) -> Action:
        if answer is None:
            self.state.subscriptions.failed(address)
        return Action.NOTHING

    def _obey(self, action: Action) -> Action:
        if action is Action.SWEEP:
            self._sweep_s = -math.inf
        elif action is Action.STAND_BY:
            self.administrator.is_master, self._taking_over, self.report = False, True, None
            self.state.known = None  # another writes into the devices from now on
            self._write_status()
        return action

    # -- status -----------------------------------------------------------------------------------------------------

    def _write_status(self, sm_state: str = "") -> None:
        if self.options.state_file is not None:
            status = describe(self, sm_state)
            self._writing.attempt("the state", partial(write_status, self.options.state_file, status))
