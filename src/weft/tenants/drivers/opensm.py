"""Partitions of OpenSM: write its files, send SIGHUP, and read the ports until OpenSM has applied them.

    lock -- partitions.conf, marked open -- opensm.conf -- SIGHUP -- wait for the tables -- partitions.conf, closed

If the process is killed in between, the file stays marked open. OpenSM applies that file at its next sweep in any case,
so the next `read` signals OpenSM again and waits.
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
from weft.diags.query import HERE, Target, get_smp
from weft.errors import NoResponseError, SubnetError
from weft.mad.carrier import Carrier
from weft.sm.inventory import take_inventory
from weft.tenants.drivers.driver import Checked, FabricChangedError, Observed, inventory_of
from weft.tenants.drivers.opensm_files import OpenSmFiles, load
from weft.tenants.drivers.partition_files import check_index0
from weft.tenants.drivers.port_tables import read_port_tables
from weft.tenants.partitions import Allocation, Inventory
from weft.wire.port_info import PortInfo
from weft.wire.smp import SMInfo, SmpAttribute

_TIMEOUT_S = 120.0  # OpenSM needs a minute for some thousand nodes
_PAUSE_S = 0.1
_IDLE_MADS = 8  # most MADs that an idle manager sends between two queries: answers to us and to others
_MOST_NAMED = 3


class OpenSmDriver:
    """A driver for OpenSM. `signal`: the process id of OpenSM, or a file with it."""

    def __init__(
        self,
        *,
        partitions: Path,
        options: Path,
        signal: int | Path,
        carrier: Carrier,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._partitions, self._options = partitions.absolute(), options.absolute()
        self._process, self._carrier, self._timeout_s = signal, carrier, timeout_s

    @property
    def title(self) -> str:
        return f"OpenSM with {self._partitions}"

    def inventory(self) -> Inventory:
        """Return the ports. The routing engine, which may use several service levels, is read from the files."""
        inventory = inventory_of(take_inventory(read_port_tables(self._carrier).view), SMInfo.guid.get(self._manager()))
        return replace(inventory, routing_sls=self._load().routing_sls)

    def read(self) -> Observed:
        with runtime.lock_folder(self._partitions.parent):
            files = self._load()
            if files.partitions.is_open:
                self._apply_files(files)
            return files.observed()

    def write(self, desired: Allocation, *, over: Observed) -> None:
        check_index0(desired.partitions.values())
        with runtime.lock_folder(self._partitions.parent):
            before = self._load()
            if before.revision != over.revision or before.partitions.is_open:
                raise FabricChangedError(f"{self.title}: its files have changed since they were read; read them again")
            after = before.with_allocation(desired)
            if after == before:
                return
            self._activity()  # raises if OpenSM does not answer: then nothing is written
            self._check_process()
            try:
                self._apply_files(after)
            except BaseException:
                with suppress(SubnetError):  # the file stays marked open, and the next `read` completes it
                    self._apply_files(before)
                raise

    def check(self, *, repair: bool) -> Checked:
        """Compare the tables of the ports with the files; to repair, make OpenSM sweep."""
        with runtime.lock_folder(self._partitions.parent):
            files = self._load()
            differences = read_port_tables(self._carrier).differences(*files.expected())
            if differences and repair:
                self._check_process()
                self._sweep(files)
            return Checked(differences=tuple(differences), repaired=())

    def _load(self) -> OpenSmFiles:
        return load(self._partitions, self._options)

    # -- OpenSM -------------------------------------------------------------------------------------------------------

    def _apply_files(self, files: OpenSmFiles) -> None:
        """Write the files and wait until OpenSM has applied them."""
        files.opened().write_partitions()
        files.write_options()
        self._sweep(files)
        files.closed().write_partitions()

    def _sweep(self, files: OpenSmFiles) -> None:
        """Make OpenSM sweep, and wait until the ports match the files.

        OpenSM counts the MADs that it sends: many, and then no more, mean that the sweep has ended. Its answers to
        these queries are subtracted.
        """
        nodes = len(read_port_tables(self._carrier).view.fabric.nodes)
        started = last = self._activity()
        self._signal()
        until_s = time.monotonic() + self._timeout_s
        wrong = ["it has not swept"]
        for queries in itertools.takewhile(lambda _: time.monotonic() < until_s, itertools.count(1)):
            time.sleep(_PAUSE_S)
            now = self._activity() - queries
            if now - started > nodes and now - last < _IDLE_MADS:
                wrong = read_port_tables(self._carrier).differences(*files.expected())
                if not wrong:
                    return
            last = now
        listed = ", ".join(wrong[:_MOST_NAMED]) + (
            f" and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
        )
        raise SubnetError(
            f"{self.title} has not applied the files within {self._timeout_s:g} s: {listed}\n"
            "  The files are restored. Check that it is the master and was started with these files (-P, -F)."
        )

    def _activity(self) -> int:
        """Return the number of MADs that the master has sent."""
        return SMInfo.act_count.get(self._manager())

    def _manager(self) -> bytes:
        """Return SMInfo of the master. Raise SubnetError if it does not answer."""
        lid = PortInfo.master_sm_lid.get(get_smp(self._carrier, HERE, SmpAttribute.PORT_INFO))
        if not lid:
            raise SubnetError(f"{self.title}: no subnet manager has configured this port: start OpenSM")
        try:
            return get_smp(self._carrier, Target(lid), SmpAttribute.SM_INFO)
        except SubnetError as error:
            raise NoResponseError(f"{self.title}: the subnet manager at LID {lid} does not answer: {error}") from None

    def _signal(self) -> None:
        try:
            os.kill(self._number(), signals.SIGHUP)
        except OSError as error:
            raise self._signal_error(error) from None

    def _check_process(self) -> None:
        """Check that the process handles SIGHUP, as OpenSM does; others would be killed by it."""
        number = self._number()
        try:
            status = dict(line.split(":\t", 1) for line in Path(f"/proc/{number}/status").read_text().splitlines())
        except OSError as error:
            raise self._signal_error(error) from None
        if not int(status["SigCgt"], 16) & 1 << (signals.SIGHUP - 1):
            raise SubnetError(
                f"{self.title}: process {number} is {status['Name']}, which SIGHUP would kill, not OpenSM; nothing was "
                "changed: give OpenSM's process id with --opensm-pid (pgrep -x opensm)"
            )

    def _number(self) -> int:
        try:
            return self._process if isinstance(self._process, int) else int(self._process.read_text())
        except (OSError, ValueError) as error:
            raise self._signal_error(error) from None

    def _signal_error(self, error: Exception) -> SubnetError:
        process = self._process
        where = f"process {process}" if isinstance(process, int) else f"the process in {process}"
        return SubnetError(f"{self.title}: cannot signal {where}: {error}")
