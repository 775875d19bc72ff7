"""Slices in a subnet of a UFM's, call by call: what went before a call that fails is taken back by other calls.

A UFM does not say who made a partition: those with a P_Key of `pool` are ours, all others are taken. Two things cannot
be set over its REST: that ports are limited members of Default, without which no slice is isolated, and lanes. An
allocation that wants them otherwise than they are is refused, and told where they are set. Names of partitions need UFM
6.22 or later.
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
_QOS = UfmQos()  # what a partition has if nobody says anything
_MTUS_BYTES = (2048, 4096)


class UfmDriver:
    def __init__(self, ufm: UfmClient, pool: Container[int] = _ALL) -> None:
        self._ufm, self._pool = ufm, pool

    @property
    def title(self) -> str:
        return f"UFM at {self._ufm.url}"

    def inventory(self) -> Inventory:
        ports = [port for port in self._ufm.ports(sys_type="Computer") if port.is_computer]
        return Inventory(tuple(_end_ports(ports)))

    def read(self) -> Observed:
        there, qos = self._ufm.pkeys(), self._ufm.qos_conf()
        default = there.pop(DEFAULT_P_KEY, None)
        allocation = Allocation(
            partitions={
                key: _partition(key, one, qos.get(key, _QOS)) for key, one in there.items() if key in self._pool
            },
            # UFM says so since 6.19. Who says nothing may let everybody reach everybody.
            default_is_full=default is None or default.membership != "limited",
        )
        taken = frozenset(key for key in there if key not in self._pool)
        digest = hashlib.blake2b(repr((sorted(there.items()), sorted(qos.items()))).encode(), digest_size=12)
        return Observed(allocation=allocation, taken=taken, revision=digest.hexdigest())

    def check(self, *, repair: bool) -> Checked:
        """Nothing: a UFM shows no tables of ports, and keeps them itself as it was told."""
        return Checked(differences=(), repaired=())

    def write(self, wanted: Allocation, *, over: Observed) -> None:
        before = self.read()
        if before.revision != over.revision:
            raise FabricChangedError(f"{self.title}: its partitions have changed since they were read; read them again")
        self._check(wanted, before)
        try:
            self._change(before.allocation, wanted)
            self._verify(wanted)
        except BaseException as error:
            self._take_back(before.allocation, error)
            raise

    def _check(self, wanted: Allocation, there: Observed) -> None:
        check_index0(wanted.partitions.values())
        for one in wanted.partitions.values():
            check_name(one.name)
            if one.p_key not in self._pool or one.p_key in there.taken:
                raise ConfigError(f"the P_Key of {one.label} is taken: weft was not given it at {self.title}")
            if one.mtu_bytes not in (None, *_MTUS_BYTES):
                raise ConfigError(f"the MTU of {one.label}, {one.mtu_bytes} bytes, is refused: UFM has 2048 and 4096")
        if (
            there.allocation.partitions or not wanted.partitions
        ):  # with the first one weft's own service makes Default limited
            self._check_default(wanted, there.allocation)
        if wanted.lanes != there.allocation.lanes:
            raise SubnetError(
                f"{self.title}: lanes cannot be set over REST\n"
                "  Leave out classes here, and write qos_sl2vl, qos_vlarb_high and qos_vlarb_low into its opensm.conf."
            )

    def _check_default(self, wanted: Allocation, there: Allocation) -> None:
        if wanted.default_is_full != there.default_is_full:
            word = "full" if wanted.default_is_full else "limited"
            raise SubnetError(
                f"{self.title}: ports cannot be made {word} members of Default over REST\n"
                f"  Write default_membership = {word} into gv.cfg there, and start UFM again (6.19 or later)."
            )

    # -- calls --------------------------------------------------------------------------------------------------------

    def _change(self, there: Allocation, wanted: Allocation) -> None:
        """What goes first: tables of ports have so many places."""
        for p_key, old in there.partitions.items():
            new = wanted.partitions.get(p_key)
            if new is None or not _can_become(old, new):
                self._ufm.delete_pkey(p_key)
            elif gone := old.members.keys() - new.members.keys():
                self._ufm.remove_guids(p_key, sorted(gone))
        for p_key, new in wanted.partitions.items():
            before = there.partitions.get(p_key)
            self._bring(before if before is not None and _can_become(before, new) else None, new)

    def _bring(self, old: Partition | None, new: Partition) -> None:
        if old is None:
            self._ufm.create_pkey(new.p_key, new.name, ip_over_ib=new.ipoib, qos=_qos(new))
        elif _qos(old) != _qos(new):
            self._ufm.set_qos_conf(new.p_key, _qos(new))
        known = old.members if old is not None and old.ipoib == new.ipoib else {}
        members = {guid: member for guid, member in new.members.items() if known.get(guid) != member}
        if members:
            self._ufm.add_guids(new.p_key, members, ip_over_ib=new.ipoib)

    def _verify(self, wanted: Allocation) -> None:
        there = self.read().allocation
        self._check_default(wanted, there)
        wrong = [one.label for key, one in wanted.partitions.items() if there.partitions.get(key) != _as_read(one)]
        wrong += [one.label for key, one in there.partitions.items() if key not in wanted.partitions]
        if wrong:
            raise SubnetError(
                f"{self.title} says that all is done, and has {', '.join(wrong[:3])} otherwise than it was told\n"
                "  Names of partitions need UFM 6.22 or later. Does another change them at the same time?"
            )

    def _take_back(self, before: Allocation, why: BaseException) -> None:
        try:
            self._change(self.read().allocation, before)
        except SubnetError as error:
            raise SubnetError(
                f"{why}\n  Nor could what was done before be taken back: {error}; apply it again."
            ) from why


def _can_become(old: Partition, new: Partition) -> bool:
    """A partition keeps its name, and IPoIB is told with members only."""
    return old.name == new.name and (old.ipoib == new.ipoib or bool(new.members))


def _partition(p_key: int, one: UfmPKey, qos: UfmQos) -> Partition:
    said = Partition(
        name=one.partition,
        p_key=p_key,
        members=one.members,
        ipoib=one.ip_over_ib,
        sl=qos.sl,
        mtu_bytes=qos.mtu_bytes,
        rate_gbit_s=qos.rate_gbit_s,
    )
    return _as_read(said)


def _as_read(one: Partition) -> Partition:
    """What is as UFM has it anyway does not come back."""
    return replace(
        one,
        mtu_bytes=None if one.mtu_bytes == _QOS.mtu_bytes else one.mtu_bytes,
        rate_gbit_s=None if one.rate_gbit_s == _QOS.rate_gbit_s else one.rate_gbit_s,
    )


def _qos(one: Partition) -> UfmQos:
    return UfmQos(mtu_bytes=one.mtu_bytes or _QOS.mtu_bytes, rate_gbit_s=one.rate_gbit_s or _QOS.rate_gbit_s, sl=one.sl)


def _end_ports(ports: list[UfmPort]) -> Iterator[EndPort]:
    """Named as weft names them: h1/1, and dgx1/mlx5_0/1 where a host has several adapters."""
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
