"""What Neutron's database says is made true at the UFM, again and again: whatever failed before is done then.

The UFM is read before the database. So a port that was bound meanwhile is in the database already, and its GUID is no
stranger; what changes between reading and writing is seen in the next round, which follows at once where one changed
something.
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
ENTITY = "weft"  # of provisioning blocks
_ROUNDS = 3  # that change something, one after another


@dataclass(frozen=True, slots=True)
class _Wanted:
    partition: Partition
    ports: dict[int, list[str]] = field(default_factory=dict)  # GUID -> ports that wait to be ACTIVE


def resync(ufm: UfmClient, rules: Rules) -> bool:
    """Was there anything to do? Raises UfmError if the UFM is away."""
    for done in range(_ROUNDS):
        found = {p_key: one for p_key, one in ufm.pkeys().items() if rules.is_ours(one.partition)}
        wanted = _read_neutron(rules)
        if not (_bring(ufm, wanted, found) | _take_away(ufm, wanted, found)):
            return done > 0
    return True


def _read_neutron(rules: Rules) -> dict[int, _Wanted]:
    """By P_Key."""
    plugin, admin = directory.get_plugin(), neutron_context.get_admin_context()
    wanted: dict[str, _Wanted] = {}  # by network
    for network in plugin.get_networks(admin):
        if partition := rules.partition(network["id"], segments_of(network)):
            wanted[network["id"]] = _Wanted(partition)
    for port in plugin.get_ports(admin, filters={"network_id": list(wanted)}) if wanted else []:
        if (guid := member_of(port)) is not None:
            waiting = wanted[port["network_id"]].ports.setdefault(guid, [])
            if port["status"] != "ACTIVE":
                waiting.append(port["id"])
    return {one.partition.p_key: one for one in wanted.values()}


def _bring(ufm: UfmClient, wanted: Mapping[int, _Wanted], found: Mapping[int, UfmPKey]) -> bool:
    changed = False
    for p_key, one in wanted.items():
        there = found.get(p_key)
        members = there.members if there is not None and there.partition == one.partition.name else None
        missing = [guid for guid in one.ports if members is None or guid not in members]
        try:
            if missing:
                admit(ufm, one.partition, missing)
            elif members is None:
                claim(ufm, one.partition)
        except WeftError as error:
            if is_away(error):
                raise
            LOG.error("%s", error)  # of one network: the others go on
            continue
        changed |= bool(missing) or members is None
        for port_id in (port_id for waiting in one.ports.values() for port_id in waiting):
            admin = neutron_context.get_admin_context()
            provisioning_blocks.provisioning_complete(admin, port_id, resources.PORT, ENTITY)
    return changed


def _take_away(ufm: UfmClient, wanted: Mapping[int, _Wanted], found: Mapping[int, UfmPKey]) -> bool:
    changed = False
    for p_key, there in found.items():
        one = wanted.get(p_key)
        if one is None or one.partition.name != there.partition:
            release(ufm, Partition(p_key=p_key, name=there.partition))
            changed = True
        elif strangers := [guid for guid in there.members if guid not in one.ports]:
            expel(ufm, one.partition, strangers)
            changed = True
    return changed


class ResyncWorker(worker.BaseWorker):  # type: ignore[misc]
    """A process of Neutron's that does it every so often."""

    def __init__(self, ufm: UfmClient, rules: Rules, interval_s: float) -> None:
        super().__init__(desc="weft resync")
        self._ufm, self._rules, self._interval_s = ufm, rules, interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_round, name="weft-resync", daemon=True)

    def start(self, **words: Any) -> None:
        super().start(**words)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()

    def wait(self) -> None:
        self._thread.join()

    def reset(self) -> None:
        """Nothing is kept between two rounds."""

    def _go_round(self) -> None:
        while not self._ended.wait(self._interval_s):
            try:
                if resync(self._ufm, self._rules):
                    LOG.info("The partitions at UFM %s follow Neutron again", self._ufm.url)
            except WeftError as error:
                LOG.error("%s", error)
            except Exception:  # of Neutron's database, say: the next round may go well
                LOG.exception("weft's resync failed")
