"""Keep subscriptions: Set(InformInfo) subscribes, and notices are sent to subscribers as Report(Notice).

    reports = subscriptions.reports(notice, view)       MADs, and where they go; a ReportResp is due for each
    subscriptions.failed(address)                       no ReportResp came: the subscriber is gone

The subnet manager's own notices about ports and groups that came and went (traps 64 to 67) are put into
`Subscriptions.outbox` by `announce_group` and `announce_ports`; `take` empties it.
(InfiniBand Architecture volume 1, "Event Forwarding" and "InformInfoRecord".)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from weft.ids import Gid
from weft.mad.carrier import Address
from weft.sm.discovery.view import View
from weft.sm.pkey.tables import may_talk
from weft.wire.mad import Method
from weft.wire.notice import GidDetails, GmpNotice, Notice, NoticeType, ProducerType, Trap
from weft.wire.sa import InformInfo, InformInfoRecord, SaAttribute, SaMad

ALL = 0xFFFF  # LIDs, types, trap numbers
_ALL_PRODUCERS = 0xFF_FFFF
_OF_SM = (Trap.GID_IN_SERVICE, Trap.GID_OUT_OF_SERVICE, Trap.MGID_CREATED, Trap.MGID_DESTROYED)
SECURITY = range(Trap.BAD_M_KEY, Trap.BAD_SWITCH_P_KEY + 1)


@dataclass(slots=True, kw_only=True, eq=False)
class Subscription:
    """A subscription to events; `number` distinguishes those of one port."""

    gid: int
    number: int
    info: InformInfo  # with the QP that it came from
    address: Address
    trusted: bool

    @property
    def guid(self) -> int:
        return int(Gid(self.gid).guid)

    @property
    def record(self) -> InformInfoRecord:
        return InformInfoRecord(subscriber_gid=self.gid, enum=self.number, inform_info=self.info)

    def wants(self, notice: GmpNotice) -> bool:
        """Return whether the filter accepts a notice."""
        info = self.info
        begin, end = info.lid_range_begin, info.lid_range_end or info.lid_range_begin
        from_there = begin == ALL or begin <= notice.issuer_lid <= end
        if info.gid:
            from_there = info.gid == notice.issuer_gid
        if notice.is_generic and notice.trap_number in SECURITY and not self.trusted:
            return False
        return (
            from_there
            and bool(info.is_generic) == bool(notice.is_generic)
            and info.type in (ALL, int(notice.type))
            and info.trap_number in (ALL, int(notice.trap_number))
            and info.producer_type in (_ALL_PRODUCERS, int(notice.producer_type))
        )


@dataclass(slots=True, eq=False)
class Subscriptions:
    """The subscriptions, the newest last."""

    all: list[Subscription] = field(default_factory=list)
    outbox: list[tuple[bytes, Address]] = field(default_factory=list)  # reports to send

    def subscribe(self, gid: int, info: InformInfo, address: Address, *, trusted: bool = False) -> None:
        """Add a subscription; one with the same filter replaces it."""
        info = info.replace(qpn=address.qp, subscribe=1)
        before = self._find(gid, info, address)
        if before is not None:
            before.trusted |= trusted
            return
        numbers = {subscription.number for subscription in self.all if subscription.gid == gid}
        number = next(n for n in range(len(numbers) + 1) if n not in numbers)
        self.all.append(Subscription(gid=gid, number=number, info=info, address=address, trusted=trusted))

    def unsubscribe(self, gid: int, info: InformInfo, address: Address) -> bool:
        """Remove a subscription; return whether it existed."""
        subscription = self._find(gid, info, address)
        if subscription is not None:
            self.all.remove(subscription)
        return subscription is not None

    def _find(self, gid: int, info: InformInfo, address: Address) -> Subscription | None:
        """Find a subscription by its significant fields: not by LIDs if a GID is given, nor by the response time."""
        key = _key(info)
        return next(
            (
                subscription
                for subscription in self.all
                if subscription.gid == gid and subscription.address.qp == address.qp and _key(subscription.info) == key
            ),
            None,
        )

    def settle(self, view: View, *, drop: bool = False) -> None:
        """Update the LIDs of subscriptions after a sweep. `drop`: remove those of ports that are gone."""
        slots = end_ports(view)
        if drop:
            self.all = [subscription for subscription in self.all if subscription.guid in slots]
        for subscription in self.all:
            if subscription.guid in slots:
                subscription.address = replace(
                    subscription.address, lid=int(view.fabric.tables.lid[slots[subscription.guid]])
                )

    def failed(self, address: Address) -> None:
        """Remove the subscriptions of an address that does not answer."""
        self.all = [
            subscription
            for subscription in self.all
            if (subscription.address.lid, subscription.address.qp) != (address.lid, address.qp)
        ]

    def reports(
        self, notice: bytes, view: View, *, p_key: int = 0, before: View | None = None
    ) -> list[tuple[bytes, Address]]:
        """Return the reports of a notice to subscribers that share a partition with its port.

        A subscription to certain ports that may not talk to its subscriber any more ends. `p_key` is that of the
        group which a notice is about; `before` has the port that it is about, if that is gone.
        """
        unpacked = GmpNotice.unpack(notice)
        interested = [subscription for subscription in self.all if subscription.wants(unpacked)]
        if not interested:
            return []
        mad = SaMad.pack(method=Method.REPORT, attribute_id=SaAttribute.NOTICE, data=notice.ljust(200, b"\0"))
        slots = end_ports(view)
        subject = find_port(before or view, _subject(unpacked))
        theirs = _keys(before or view, subject)
        reports = []
        for subscription in interested:
            slot = slots.get(subscription.guid)
            if slot is None:
                continue
            if p_key:
                may = has_p_key(view, slot, p_key)
            else:
                may = bool(may_talk(theirs, _keys(view, slot))) or _subject(unpacked) == subscription.guid
                if (
                    subject is not None
                    and not may
                    and not subscription.info.gid
                    and subscription.info.lid_range_begin != ALL
                ):
                    self.all.remove(subscription)
            if may:
                reports.append((mad, subscription.address))
        return reports

    def take(self) -> list[tuple[bytes, Address]]:
        """Return the reports to send, and clear the outbox."""
        due, self.outbox = self.outbox, []
        return due

    # -- what the subnet manager has to tell ----------------------------------------------------------------------

    def announce_group(self, view: View, trap: Trap, mgid: int, p_key: int, prefix: int) -> None:
        """Queue reports of trap 66 or 67."""
        self.outbox += self.reports(gid_notice(trap, mgid, view, prefix), view, p_key=p_key)

    def announce_ports(self, before: View | None, now: View, prefix: int) -> None:
        """Queue reports of traps 64 and 65 for ports that appeared or disappeared since the last sweep."""
        if before is not None and self.all:
            old, new = before.fabric.ports.guid[before.end_ports], now.fabric.ports.guid[now.end_ports]
            for guid in np.setdiff1d(old, new).tolist():
                notice = gid_notice(Trap.GID_OUT_OF_SERVICE, prefix << 64 | guid, now, prefix)
                self.outbox += self.reports(notice, now, before=before)
            for guid in np.setdiff1d(new, old).tolist():
                notice = gid_notice(Trap.GID_IN_SERVICE, prefix << 64 | guid, now, prefix)
                self.outbox += self.reports(notice, now)

    # -- copies of another subnet manager's -----------------------------------------------------------------------

    def load_records(self, records: Iterable[InformInfoRecord], view: View) -> None:
        """Load subscriptions of present ports. Trust is lost, except for single security traps."""
        slots = end_ports(view)
        for record in records:
            slot = slots.get(int(Gid(record.subscriber_gid).guid))
            if slot is not None:
                info = record.inform_info
                address = Address(int(view.fabric.tables.lid[slot]), qp=info.qpn or 1)
                self.subscribe(record.subscriber_gid, info, address, trusted=info.trap_number in SECURITY)


def _key(info: InformInfo) -> tuple[int, ...]:
    where = (info.gid,) if info.gid else (0, info.lid_range_begin, info.lid_range_end)
    return (*where, info.is_generic, info.type, info.trap_number, info.producer_type)


def _subject(notice: GmpNotice) -> int:
    """Return the GUID of the port that a notice is about."""
    if notice.is_generic and notice.trap_number in _OF_SM:
        return int(Gid(GidDetails.unpack(notice.data_details).gid_addr).guid)
    return int(Gid(notice.issuer_gid).guid)


# -- ports and partitions ---------------------------------------------------------------------------------------------


def end_ports(view: View) -> dict[int, int]:
    """Return the slots by port GUID."""
    return dict(zip(view.fabric.ports.guid[view.end_ports].tolist(), view.end_ports.tolist(), strict=True))


def find_port(view: View, guid: int) -> int | None:
    """Return the slot of the end port with a GUID."""
    ends = view.end_ports
    matches = np.flatnonzero(view.fabric.ports.guid[ends] == np.uint64(guid))
    return int(ends[matches[0]]) if len(matches) else None


def has_p_key(view: View, slot: int, p_key: int) -> bool:
    """Return whether the port is a member of the partition; every port is in 0, which is none."""
    partition = p_key & 0x7FFF
    return partition == 0 or bool((view.fabric.tables.pkey[slot] & 0x7FFF == partition).any())


def share_partition(view: View, a: int, b: int) -> bool:
    return a == b or bool(may_talk(_keys(view, a), _keys(view, b)))


def _keys(view: View, slot: int | None) -> set[int]:
    return set(view.fabric.tables.pkey[slot].tolist()) if slot is not None else set()


# -- what the subnet manager has to tell ------------------------------------------------------------------------------


def gid_notice(trap: Trap, gid: int, view: View, prefix: int) -> bytes:
    """Return a notice of this manager that a GID appeared or disappeared."""
    own = view.own_slot
    return GmpNotice.pack(
        type=NoticeType.SUBNET_MANAGEMENT,
        producer_type=ProducerType.CLASS_MANAGER,
        trap_number=trap,
        issuer_lid=int(view.fabric.tables.lid[own]),
        data_details=GidDetails.pack(gid_addr=gid),
        issuer_gid=prefix << 64 | int(view.fabric.ports.guid[own]),
    )


def forwarded(trap: bytes, view: View, prefix: int) -> bytes:
    """Return the 64 bytes of a notice that a port sent as a trap, with the GID of the sender."""
    lid = Notice.unpack(trap).issuer_lid
    ends, tables = view.end_ports, view.fabric.tables
    matches = ends[(tables.lid[ends] <= lid) & (lid < tables.lid[ends] + (1 << tables.lmc[ends].astype(np.int64)))]
    guid = int(view.fabric.ports.guid[matches[0]]) if len(matches) else 0
    return trap[: Notice.size] + (prefix << 64 | guid).to_bytes(16, "big")
