"""Periodically make UFM's partitions match Neutron's database; this repeats operations that failed before.

UFM is read before the database: a port that is bound in between is in the database already, so its GUID is kept.
Changes between reading and writing are found in the next round, which follows at once if a round changed something.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from neutron.db import provisioning_blocks
from neutron_lib import context as neutron_context
from neutron_lib import worker
from neutron_lib.callbacks import resources
from neutron_lib.plugins import directory
from oslo_log import log

from weft.clouds.openstack.members import Rules, member_of, segments_of
from weft.clouds.partitions import Partition, admit, claim, expel, is_away, release
from weft.errors import WeftError
from weft.tenants.drivers.ufm_rest import UfmClient
from weft.tenants.drivers.ufm_shapes import UfmPKey

LOG = log.getLogger(__name__)
ENTITY = "weft"  # the entity of provisioning blocks
_ROUNDS = 3  # most rounds in a row


@dataclass(frozen=True, slots=True)
class _Expected:
    """A partition and its members by Neutron's database."""

    partition: Partition
    ports: dict[int, list[str]] = field(default_factory=dict)  # GUID -> ids of ports that are not ACTIVE yet


def resync(ufm: UfmClient, rules: Rules) -> bool:
    """Make UFM match Neutron; return whether anything differed. Raise UfmError if UFM is unavailable."""
    for done in range(_ROUNDS):
        current = {p_key: pkey for p_key, pkey in ufm.pkeys().items() if rules.is_ours(pkey.partition)}
        expected = _read_neutron(rules)
        if not (_add_missing(ufm, expected, current) | _remove_extra(ufm, expected, current)):
            return done > 0
    return True


def _read_neutron(rules: Rules) -> dict[int, _Expected]:
    """Return the expected partitions by P_Key."""
    plugin, admin = directory.get_plugin(), neutron_context.get_admin_context()
    expected: dict[str, _Expected] = {}  # by network
    for network in plugin.get_networks(admin):
        if partition := rules.partition(network["id"], segments_of(network)):
            expected[network["id"]] = _Expected(partition)
    for port in plugin.get_ports(admin, filters={"network_id": list(expected)}) if expected else []:
        if (guid := member_of(port)) is not None:
            waiting = expected[port["network_id"]].ports.setdefault(guid, [])
            if port["status"] != "ACTIVE":
                waiting.append(port["id"])
    return {entry.partition.p_key: entry for entry in expected.values()}


def _add_missing(ufm: UfmClient, expected: Mapping[int, _Expected], current: Mapping[int, UfmPKey]) -> bool:
    changed = False
    for p_key, entry in expected.items():
        pkey = current.get(p_key)
        members = pkey.members if pkey is not None and pkey.partition == entry.partition.name else None
        missing = [guid for guid in entry.ports if members is None or guid not in members]
        try:
            if missing:
                admit(ufm, entry.partition, missing)
            elif members is None:
                claim(ufm, entry.partition)
        except WeftError as error:
            if is_away(error):
                raise
            LOG.error("%s", error)  # for one network; continue with the others
            continue
        changed |= bool(missing) or members is None
        for port_id in (port_id for waiting in entry.ports.values() for port_id in waiting):
            admin = neutron_context.get_admin_context()
            provisioning_blocks.provisioning_complete(admin, port_id, resources.PORT, ENTITY)
    return changed


def _remove_extra(ufm: UfmClient, expected: Mapping[int, _Expected], current: Mapping[int, UfmPKey]) -> bool:
    changed = False
    for p_key, pkey in current.items():
        entry = expected.get(p_key)
        if entry is None or entry.partition.name != pkey.partition:
            release(ufm, Partition(p_key=p_key, name=pkey.partition))
            changed = True
        elif extra := [guid for guid in pkey.members if guid not in entry.ports]:
            expel(ufm, entry.partition, extra)
            changed = True
    return changed


class ResyncWorker(worker.BaseWorker):  # type: ignore[misc]
    """A Neutron worker process that calls `resync` periodically."""

    def __init__(self, ufm: UfmClient, rules: Rules, interval_s: float) -> None:
        super().__init__(desc="weft resync")
        self._ufm, self._rules, self._interval_s = ufm, rules, interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weft-resync", daemon=True)

    def start(self, **parameters: Any) -> None:
        super().start(**parameters)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()

    def wait(self) -> None:
        self._thread.join()

    def reset(self) -> None:
        """Keep running: there is no state to reset."""

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            try:
                if resync(self._ufm, self._rules):
                    LOG.info("Partitions at UFM %s match Neutron again", self._ufm.url)
            except WeftError as error:
                LOG.error("%s", error)
            except Exception:  # for example of Neutron's database; the next round may succeed
                LOG.exception("weft's resync failed")
