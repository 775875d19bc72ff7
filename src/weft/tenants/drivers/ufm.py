"""Partitions of UFM, changed call by call; if a call fails, the earlier ones are reverted by further calls.

UFM does not record who created a partition: weft manages those with a P_Key in `pool`, all others are foreign. Two
settings are not available over REST: limited membership in Default, which isolation needs, and lanes. An allocation
that changes them is refused with a hint where to set them. Names of partitions need UFM 6.22 or later.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import replace

from weft.errors import ConfigError, SubnetError
from weft.fabric.files.naming import node_id
from weft.fabric.kinds import NodeKind
from weft.ids import Guid
from weft.sm.pkey.partitions import DEFAULT_P_KEY
from weft.tenants.drivers.driver import Checked, FabricChangedError, Observed
from weft.tenants.drivers.partition_files import check_index0, check_name
from weft.tenants.drivers.ufm_rest import UfmClient
from weft.tenants.drivers.ufm_shapes import UfmPKey, UfmPort, UfmQos
from weft.tenants.partitions import FIRST_P_KEY, LAST_P_KEY, Allocation, EndPort, Inventory, Partition

_ALL = range(FIRST_P_KEY, LAST_P_KEY + 1)
_QOS = UfmQos()  # UFM's defaults
_MTUS_BYTES = (2048, 4096)


class UfmDriver:
    """A driver for UFM."""

    def __init__(self, ufm: UfmClient, pool: Container[int] = _ALL) -> None:
        self._ufm, self._pool = ufm, pool

    @property
    def title(self) -> str:
        return f"UFM at {self._ufm.url}"

    def inventory(self) -> Inventory:
        ports = [port for port in self._ufm.ports(sys_type="Computer") if port.is_computer]
        return Inventory(tuple(_end_ports(ports)))

    def read(self) -> Observed:
        current, qos = self._ufm.pkeys(), self._ufm.qos_conf()
        default = current.pop(DEFAULT_P_KEY, None)
        allocation = Allocation(
            partitions={
                key: _partition(key, pkey, qos.get(key, _QOS)) for key, pkey in current.items() if key in self._pool
            },
            # UFM reports it since 6.19; without a report assume full members, which are not isolated.
            default_is_full=default is None or default.membership != "limited",
        )
        foreign_p_keys = frozenset(key for key in current if key not in self._pool)
        digest = hashlib.blake2b(repr((sorted(current.items()), sorted(qos.items()))).encode(), digest_size=12)
        return Observed(allocation=allocation, foreign_p_keys=foreign_p_keys, revision=digest.hexdigest())

    def check(self, *, repair: bool) -> Checked:
        """Return no differences: UFM does not show the tables of ports, and repairs them itself."""
        return Checked(differences=(), repaired=())

    def write(self, desired: Allocation, *, over: Observed) -> None:
        before = self.read()
        if before.revision != over.revision:
            raise FabricChangedError(f"{self.title}: its partitions have changed since they were read; read them again")
        self._check(desired, before)
        try:
            self._change(before.allocation, desired)
            self._verify(desired)
        except BaseException as error:
            self._revert(before.allocation, error)
            raise

    def _check(self, desired: Allocation, current: Observed) -> None:
        check_index0(desired.partitions.values())
        for partition in desired.partitions.values():
            check_name(partition.name)
            if partition.p_key not in self._pool or partition.p_key in current.foreign_p_keys:
                raise ConfigError(f"the P_Key of {partition.label} is not managed by weft at {self.title}: use another")
            if partition.mtu_bytes not in (None, *_MTUS_BYTES):
                raise ConfigError(
                    f"the MTU of {partition.label} must be 2048 or 4096 bytes for UFM, got {partition.mtu_bytes}"
                )
        if (
            current.allocation.partitions or not desired.partitions
        ):  # `weft serve` limits Default with the first partition
            self._check_default(desired, current.allocation)
        if desired.lanes != current.allocation.lanes:
            raise SubnetError(
                f"{self.title}: lanes cannot be set over REST\n"
                "  Remove the classes here, and set qos_sl2vl, qos_vlarb_high and qos_vlarb_low in its opensm.conf."
            )

    def _check_default(self, desired: Allocation, current: Allocation) -> None:
        if desired.default_is_full != current.default_is_full:
            word = "full" if desired.default_is_full else "limited"
            raise SubnetError(
                f"{self.title}: ports cannot be made {word} members of Default over REST\n"
                f"  Set default_membership = {word} in its gv.cfg and restart UFM (6.19 or later)."
            )

    # -- calls --------------------------------------------------------------------------------------------------------

    def _change(self, current: Allocation, desired: Allocation) -> None:
        """Make the calls that change the partitions. Remove members first: P_Key tables of ports are small."""
        for p_key, old in current.partitions.items():
            new = desired.partitions.get(p_key)
            if new is None or not _can_become(old, new):
                self._ufm.delete_pkey(p_key)
            elif removed := old.members.keys() - new.members.keys():
                self._ufm.remove_guids(p_key, sorted(removed))
        for p_key, new in desired.partitions.items():
            before = current.partitions.get(p_key)
            self._put(before if before is not None and _can_become(before, new) else None, new)

    def _put(self, old: Partition | None, new: Partition) -> None:
        if old is None:
            self._ufm.create_pkey(new.p_key, new.name, ip_over_ib=new.ipoib, qos=_qos(new))
        elif _qos(old) != _qos(new):
            self._ufm.set_qos_conf(new.p_key, _qos(new))
        existing = old.members if old is not None and old.ipoib == new.ipoib else {}
        members = {guid: member for guid, member in new.members.items() if existing.get(guid) != member}
        if members:
            self._ufm.add_guids(new.p_key, members, ip_over_ib=new.ipoib)

    def _verify(self, desired: Allocation) -> None:
        current = self.read().allocation
        self._check_default(desired, current)
        wrong = [
            partition.label
            for key, partition in desired.partitions.items()
            if current.partitions.get(key) != _as_read(partition)
        ]
        wrong += [partition.label for key, partition in current.partitions.items() if key not in desired.partitions]
        if wrong:
            raise SubnetError(
                f"{self.title} accepted all calls, but {', '.join(wrong[:3])} differ\n"
                "  Names of partitions need UFM 6.22 or later; another client may change them at the same time."
            )

    def _revert(self, before: Allocation, why: BaseException) -> None:
        try:
            self._change(self.read().allocation, before)
        except SubnetError as error:
            raise SubnetError(
                f"{why}\n  The earlier calls could not be reverted: {error}; apply the intent again."
            ) from why


def _can_become(old: Partition, new: Partition) -> bool:
    """Return whether calls can turn one partition into the other: names are fixed, IPoIB is set with members."""
    return old.name == new.name and (old.ipoib == new.ipoib or bool(new.members))


def _partition(p_key: int, pkey: UfmPKey, qos: UfmQos) -> Partition:
    partition = Partition(
        name=pkey.partition,
        p_key=p_key,
        members=pkey.members,
        ipoib=pkey.ip_over_ib,
        sl=qos.sl,
        mtu_bytes=qos.mtu_bytes,
        rate_gbit_s=qos.rate_gbit_s,
    )
    return _as_read(partition)


def _as_read(partition: Partition) -> Partition:
    """Return a partition without values that are UFM's defaults, as it is read back."""
    return replace(
        partition,
        mtu_bytes=None if partition.mtu_bytes == _QOS.mtu_bytes else partition.mtu_bytes,
        rate_gbit_s=None if partition.rate_gbit_s == _QOS.rate_gbit_s else partition.rate_gbit_s,
    )


def _qos(partition: Partition) -> UfmQos:
    return UfmQos(
        mtu_bytes=partition.mtu_bytes or _QOS.mtu_bytes,
        rate_gbit_s=partition.rate_gbit_s or _QOS.rate_gbit_s,
        sl=partition.sl,
    )


def _end_ports(ports: list[UfmPort]) -> Iterator[EndPort]:
    """Yield the ports under weft's names: h1/1, or dgx1/mlx5_0/1 on a host with several adapters."""
    nodes = Counter(host for host, _ in {(port.system_name, port.node) for port in ports})
    for port in ports:
        host, number = port.system_name or node_id(NodeKind.HCA, Guid.parse(port.node)), port.number or 1
        device = (port.node_description or "").removeprefix(host).partition(":")[0].strip() or port.node
        yield EndPort(
            guid=int(Guid.parse(port.guid)),
            name=f"{host}/{device}/{number}" if nodes[port.system_name] > 1 else f"{host}/{number}",
            host=host,
            node_guid=int(Guid.parse(port.node)),
            number=number,
            lid=port.lid or 0,
            is_active=port.logical_state == "Active",
        )
