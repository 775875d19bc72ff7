"""Slices in a subnet of OpenSM's: its files are written, SIGHUP tells it, and its ports are asked if it has obeyed.

    lock -- partitions.conf, marked open -- opensm.conf -- SIGHUP -- wait for the tables -- partitions.conf, closed

Whoever is killed on the way leaves a file that is marked open. OpenSM obeys that file at its next sweep whatever we do,
so the next `read` does not guess what it has obeyed: it tells OpenSM again, and waits.
"""

from __future__ import annotations

import itertools
import os
import signal as signals
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from weft import runtime
from weft.diags.ask import HERE, Target, get_smp
from weft.errors import Silent, SubnetError
from weft.mad.carrier import Carrier
from weft.sm.inventory import take_inventory
from weft.tenants.drivers.driver import Checked, FabricChangedError, Observed
from weft.tenants.drivers.inventory import inventory_of
from weft.tenants.drivers.opensm_files import OpenSmFiles, load
from weft.tenants.drivers.partition_files import check_index0
from weft.tenants.drivers.port_tables import read_port_tables
from weft.tenants.partitions import Allocation, Inventory
from weft.wire.port_info import PortInfo
from weft.wire.smp import SMInfo, SmpAttribute

_PATIENCE_S = 120.0  # OpenSM takes a minute for some thousand nodes
_PAUSE_S = 0.1
_ASIDE = 8  # MADs that a manager sends between two looks though it does not sweep: answers to us and to others
_NAMED = 3


class OpenSmDriver:
    """`signal` is the id of OpenSM's process, or a file that has it."""

    def __init__(
        self,
        *,
        partitions: Path,
        options: Path,
        signal: int | Path,
        carrier: Carrier,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._partitions, self._options = partitions.absolute(), options.absolute()
        self._process, self._carrier, self._patience_s = signal, carrier, patience_s

    @property
    def title(self) -> str:
        return f"OpenSM with {self._partitions}"

    def inventory(self) -> Inventory:
        """A walk does not show why paths have the service levels that they have; the files say which engine routes."""
        found = inventory_of(take_inventory(read_port_tables(self._carrier).view), SMInfo.guid.get(self._manager()))
        return replace(found, routing_sls=self._load().routing_sls)

    def read(self) -> Observed:
        with runtime.alone(self._partitions.parent):
            files = self._load()
            if files.partitions.is_open:
                self._obey(files)
            return files.observed()

    def write(self, wanted: Allocation, *, over: Observed) -> None:
        check_index0(wanted.partitions.values())
        with runtime.alone(self._partitions.parent):
            before = self._load()
            if before.revision != over.revision or before.partitions.is_open:
                raise FabricChangedError(f"{self.title}: its files have changed since they were read; read them again")
            after = before.with_allocation(wanted)
            if after == before:
                return
            self._activity()  # who does not answer is told nothing
            self._check_process()
            try:
                self._obey(after)
            except BaseException:
                with suppress(SubnetError):  # the file stays open then, and the next who reads goes on
                    self._obey(before)
                raise

    def check(self, *, repair: bool) -> Checked:
        """Compare the tables of the ports with the files; to repair, OpenSM is told to sweep."""
        with runtime.alone(self._partitions.parent):
            files = self._load()
            found = read_port_tables(self._carrier).differences(*files.expected())
            if found and repair:
                self._check_process()
                self._tell(files)
            return Checked(differences=tuple(found), repaired=())

    def _load(self) -> OpenSmFiles:
        return load(self._partitions, self._options)

    # -- OpenSM -------------------------------------------------------------------------------------------------------

    def _obey(self, files: OpenSmFiles) -> None:
        """Return when OpenSM has done what files say."""
        files.opened().write_partitions()
        files.write_options()
        self._tell(files)
        files.closed().write_partitions()

    def _tell(self, files: OpenSmFiles) -> None:
        """It counts the MADs that it sends: when there are many and then no more, it has swept.

        Answers to us are among them, one for each time that we ask how many.
        """
        nodes = len(read_port_tables(self._carrier).view.fabric.nodes)
        started = last = self._activity()
        self._signal()
        until_s = time.monotonic() + self._patience_s
        wrong = ["it has not swept"]
        for asked in itertools.takewhile(lambda _: time.monotonic() < until_s, itertools.count(1)):
            time.sleep(_PAUSE_S)
            now = self._activity() - asked
            if now - started > nodes and now - last < _ASIDE:
                wrong = read_port_tables(self._carrier).differences(*files.expected())
                if not wrong:
                    return
            last = now
        shown = ", ".join(wrong[:_NAMED]) + (f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else "")
        raise SubnetError(
            f"{self.title} has not obeyed within {self._patience_s:g} s: {shown}\n"
            "  Its files are as they were. Is it the master, and are these the files that it was started with (-P, -F)?"
        )

    def _activity(self) -> int:
        """How many MADs the master has sent."""
        return SMInfo.act_count.get(self._manager())

    def _manager(self) -> bytes:
        """SMInfo of the master; SubnetError if it is silent."""
        lid = PortInfo.master_sm_lid.get(get_smp(self._carrier, HERE, SmpAttribute.PORT_INFO))
        if not lid:
            raise SubnetError(f"{self.title}: no subnet manager has been at this port: start OpenSM")
        try:
            return get_smp(self._carrier, Target(lid), SmpAttribute.SM_INFO)
        except SubnetError as error:
            raise Silent(f"{self.title}: the subnet manager at LID {lid} is silent: {error}") from None

    def _signal(self) -> None:
        try:
            os.kill(self._number(), signals.SIGHUP)
        except OSError as error:
            raise self._untold(error) from None

    def _check_process(self) -> None:
        """SIGHUP ends a process that does not catch it. OpenSM does."""
        number = self._number()
        try:
            status = dict(line.split(":\t", 1) for line in Path(f"/proc/{number}/status").read_text().splitlines())
        except OSError as error:
            raise self._untold(error) from None
        if not int(status["SigCgt"], 16) & 1 << (signals.SIGHUP - 1):
            raise SubnetError(
                f"{self.title}: process {number} is {status['Name']}, which SIGHUP would end, and not OpenSM; nothing "
                "is changed: say --opensm-pid with OpenSM's own (pgrep -x opensm)"
            )

    def _number(self) -> int:
        try:
            return self._process if isinstance(self._process, int) else int(self._process.read_text())
        except (OSError, ValueError) as error:
            raise self._untold(error) from None

    def _untold(self, error: Exception) -> SubnetError:
        process = self._process
        where = f"process {process}" if isinstance(process, int) else f"the process that {process} names"
        return SubnetError(f"{self.title}: {where} cannot be told: {error}")
