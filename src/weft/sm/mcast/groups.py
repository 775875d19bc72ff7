"""Keep multicast groups: their members and multicast LIDs.

A group exists while it has a full member; groups that the partitions define exist always. A join or leave between two
sweeps puts the MLID into `Groups.changed`, and `trees.reprogram` rebuilds the tree of that group.

MLIDs are allocated in this order: the rest of the current block of 32, then freed MLIDs, the oldest first, then a new
block. So tables stay short, and late packets of a deleted group rarely reach the next group with its MLID.
(InfiniBand Architecture volume 1, "Multicast" and "MCMemberRecord".)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise

import numpy as np

from weft.ids import Gid, Lid, PKey
from weft.sm.discovery.view import View
from weft.sm.pkey.partitions import LINK_LOCAL, Partitions
from weft.sm.pkey.partitions import Group as WantedGroup
from weft.sm.pkey.tables import used_width
from weft.wire.bulk import Rows, column
from weft.wire.sa import JoinState, MCMemberRecord, Selector
from weft.wire.smp import SwitchInfo

BLOCK = 32  # MLIDs in a block of a multicast forwarding table
KEEPS_ALIVE = JoinState.FULL_MEMBER | JoinState.SEND_ONLY_FULL_MEMBER
RECEIVES = JoinState.FULL_MEMBER | JoinState.NON_MEMBER
ALL_STATES = 0xF
EXACTLY = dict.fromkeys(("mtu_selector", "rate_selector", "packet_life_time_selector"), int(Selector.EXACTLY))
_LAST_MLID = 0xFFFE
_HOP_LIMIT = 255  # scopes beyond the subnet
_SA_SIGNATURE = 0xA01B
_GUID = slice(24, 32)  # the second half of PortGID in the bytes of a record
_STATE, _PROXY = 48, 49  # scope and join state; the byte that begins with proxy_join


@dataclass(slots=True)
class Member:
    """The membership of a port in a group; `proxy`: another port joined for it."""

    join_state: int
    proxy: bool = False


@dataclass(slots=True, eq=False)
class Group:
    """A multicast group. `record` is its SA record without a member; MTU, rate and lifetime are standard codes."""

    record: MCMemberRecord
    members: dict[int, Member] = field(default_factory=dict)  # by port GUID
    well_known: bool = False  # asked for by a partition: needs no member
    wanted: WantedGroup | None = None  # as that partition has it

    @property
    def mgid(self) -> int:
        return self.record.mgid

    @property
    def mlid(self) -> int:
        return self.record.mlid

    @property
    def p_key(self) -> int:
        return self.record.p_key

    @property
    def is_alive(self) -> bool:
        """The state of the group: whether a member keeps it alive."""
        return any(member.join_state & KEEPS_ALIVE for member in self.members.values())

    def member_rows(self, prefix: int) -> Rows:
        """Return uint8[member, 56]: a record for each member."""
        blank = self.record.replace(port_gid=prefix << 64).raw
        rows = np.tile(np.frombuffer(blank, np.uint8), (len(self.members), 1))
        rows[:, _GUID] = np.array(list(self.members), ">u8").view(np.uint8).reshape(-1, 8)
        rows[:, _STATE] |= np.array([member.join_state for member in self.members.values()], np.uint8)
        rows[:, _PROXY] |= np.array([member.proxy << 7 for member in self.members.values()], np.uint8)
        return rows


@dataclass(slots=True, eq=False)
class Groups:
    """The multicast groups of a subnet."""

    by_mgid: dict[int, Group] = field(default_factory=dict)
    by_mlid: dict[int, Group] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)  # MLIDs whose trees are not in the switches yet
    last_mlid: int = _LAST_MLID  # that all switches have room for
    without_mlid: list[int] = field(default_factory=list)  # MGIDs of groups of partitions that could not be created
    _fresh: int = Lid.FIRST_MULTICAST  # from here on none was used yet
    _freed: deque[int] = field(default_factory=deque)
    _serial: int = 0  # MGIDs created here

    # -- from one moment to the next ------------------------------------------------------------------------------

    def create(self, record: MCMemberRecord) -> Group | None:
        """Create a group without members, with the MLID of the record if it is free; return None if none is left."""
        mlid = self._take_mlid(record.mlid)
        if mlid is None:
            return None
        memberless = {"port_gid": 0, "join_state": 0, "proxy_join": 0}
        group = Group(MCMemberRecord(**record.as_dict() | memberless | EXACTLY | {"mlid": mlid}))
        self.by_mgid[group.mgid] = self.by_mlid[mlid] = group
        return group

    def new_mgid(self, scope: int, prefix: int) -> int:
        """Return an unused MGID: transient, with the SA's signature and the subnet's prefix."""
        while True:
            mgid = 0xFF10 << 112 | scope << 112 | _SA_SIGNATURE << 96 | prefix << 32 | self._serial
            self._serial = self._serial + 1 & 0xFFFF_FFFF
            if mgid not in self.by_mgid:
                return mgid

    def join(self, group: Group, guid: int, join_state: int, *, proxy: bool = False) -> bool:
        """Add to what a port is in a group; whether this brought the group to life."""
        was_alive = group.is_alive
        member = group.members.setdefault(guid, Member(0, proxy))
        if member.join_state | join_state != member.join_state:
            member.join_state |= join_state
            self.changed.add(group.mlid)
        return group.is_alive and not was_alive

    def leave(self, group: Group, guid: int, join_state: int = ALL_STATES) -> bool:
        """Take from what a port is in a group; whether that ended the group, or left an empty one that stays."""
        was_alive, member = group.is_alive, group.members[guid]
        member.join_state &= ~join_state
        self.changed.add(group.mlid)
        if not member.join_state:
            del group.members[guid]
        ends = was_alive and not group.is_alive
        if ends:
            self._end(group)
        return ends

    def _end(self, group: Group) -> None:
        group.members.clear()
        self.changed.add(group.mlid)
        if not group.well_known:
            del self.by_mgid[group.mgid], self.by_mlid[group.mlid]
            self._freed.append(group.mlid)

    # -- sweeps ---------------------------------------------------------------------------------------------------

    def settle(self, view: View, partitions: Partitions, *, life_time: int) -> list[Group]:
        """Update groups after a sweep: create those of the partitions, remove members that are gone.

        Returns the groups that ended.
        """
        self.last_mlid = _last_mlid(view)
        inside = _by_partition(view)
        ended = self._drop_strangers(inside)
        # OpenSM has no groups of partitions without members.
        present = [partition for partition in partitions.partitions if partition.p_key in inside]
        required = {int(group.mgid): (group, partition.p_key) for partition in present for group in partition.groups}
        for mgid, (definition, p_key) in required.items():
            existing = self.by_mgid.get(mgid)
            if existing is None and self._has_room:
                existing = self.create(_as_record(definition, p_key, life_time))
            elif existing is not None and existing.wanted not in (None, definition):
                existing.record = _as_record(definition, p_key, life_time).replace(mlid=existing.mlid, **EXACTLY)
            if existing is not None:
                existing.well_known, existing.wanted = True, definition
        self.without_mlid = [mgid for mgid in required if mgid not in self.by_mgid]
        for group in [
            candidate for candidate in self.by_mgid.values() if candidate.well_known and candidate.mgid not in required
        ]:
            group.well_known, group.wanted = False, None
            if not group.is_alive:
                self._end(group)
        return ended

    def _drop_strangers(self, inside: dict[int, set[int]]) -> list[Group]:
        """Remove members that left the partition; `inside`: GUIDs of the members of each partition."""
        ended: list[Group] = []
        for group in [candidate for candidate in self.by_mgid.values() if candidate.members]:
            departed = group.members.keys() - inside.get(PKey(group.p_key).partition, set())
            if any(self.leave(group, guid) for guid in departed if guid in group.members):
                ended.append(group)
        return ended

    # -- copies of another subnet manager's -----------------------------------------------------------------------

    def load_records(self, records: Iterable[MCMemberRecord], view: View) -> None:
        """Load the groups of another subnet manager; omit members that are not present."""
        present = set(view.fabric.ports.guid[view.end_ports].tolist())
        for record in records:
            group = self.by_mgid.get(record.mgid)
            if group is None:
                self._make_free(record.mlid)
                group = self.create(record)
            guid = int(Gid(record.port_gid).guid)
            if group is not None and guid in present:
                group.members[guid] = Member(record.join_state, bool(record.proxy_join))
                self.changed.add(group.mlid)

    # -- MLIDs ----------------------------------------------------------------------------------------------------

    @property
    def _has_room(self) -> bool:
        return self._fresh <= self.last_mlid or bool(self._freed and self._freed[0] <= self.last_mlid)

    def _take_mlid(self, requested: int) -> int | None:
        if requested in self._freed and requested <= self.last_mlid:
            self._freed.remove(requested)
            return requested
        block_is_begun = self._fresh % BLOCK and self._fresh <= self.last_mlid
        if not block_is_begun and self._freed and self._freed[0] <= self.last_mlid:
            return self._freed.popleft()
        if self._fresh > self.last_mlid:
            return None
        self._fresh += 1
        return self._fresh - 1

    def _make_free(self, mlid: int) -> None:
        """Make an MLID available although lower ones are unused."""
        if self._fresh <= mlid <= self.last_mlid:
            self._freed.extend(range(self._fresh, mlid + 1))
            self._fresh = mlid + 1


def _last_mlid(view: View) -> int:
    """Return the last MLID of the smallest table; switches without multicast do not count."""
    cap = column(view.switch_info[view.is_switch], SwitchInfo.multicast_fdb_cap).astype(np.int64)
    cap = cap[cap > 0]
    return min(_LAST_MLID, Lid.FIRST_MULTICAST + int(cap.min()) - 1) if len(cap) else _LAST_MLID


def _by_partition(view: View) -> dict[int, set[int]]:
    """Return 15-bit P_Key -> GUIDs of the end ports that hold it, full or limited."""
    ends = view.end_ports
    tables = view.fabric.tables.pkey[ends]
    keys = tables[:, : used_width(tables)] & 0x7FFF
    row, place = np.nonzero(keys)
    order = np.argsort(keys[row, place], kind="stable")
    p_keys, first = np.unique(keys[row, place][order], return_index=True)
    guids = view.fabric.ports.guid[ends[row[order]]].tolist()
    bounds = pairwise([*first.tolist(), len(guids)])
    return {p_key: set(guids[a:b]) for p_key, (a, b) in zip(p_keys.tolist(), bounds, strict=True)}


def _as_record(group: WantedGroup, p_key: int, life_time: int) -> MCMemberRecord:
    return MCMemberRecord(
        **asdict(group),
        p_key=p_key | PKey.FULL_MEMBER,
        packet_life_time=life_time,
        hop_limit=0 if group.scope == LINK_LOCAL else _HOP_LIMIT,
    )
