"""Send very many packets across tenants on a running subnet: the senders, the keys, and the result of each packet.

    own        with a P_Key that the sender holds: all that correct firmware allows its programs
    forged     with a key that the receiver holds, as an attacker in control of the sender's adapter could send
    guessed    with a random key
    control    within a tenant, with its own key: these must arrive, or the absence of others proves nothing

Datagrams with a Q_Key and messages of connections, on all service levels; complete packets with their checksums. A
packet
that a port accepts counts as delivered, before any queue pair checks it: a queue pair gets only what its port accepts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weft.fabric.counters import Counter
from weft.fabric.forwarding import Reason
from weft.fabric.tables import SERVICE_LEVELS
from weft.ids import PKey
from weft.mad.devices import Devices
from weft.mad.many_packets import carry_many
from weft.tenants.partitions import Allocation
from weft.wire.bulk import Rows, fill, icrc, pack_rows, vcrc
from weft.wire.crc import ICRC_BYTES, VCRC_BYTES, Route
from weft.wire.headers import BTH, DETH, LNH, LRH, RWH, Opcode

OWN, FORGED, GUESSED, CONTROL, RAW = KINDS = ("own", "forged", "guessed", "control", "raw")
CROSSING = (OWN, FORGED, GUESSED)
_PAYLOAD = 16
_BYTES = LRH.size + BTH.size + DETH.size + _PAYLOAD + ICRC_BYTES + VCRC_BYTES
_Q_KEY, _QP = 0x1234, 7
Slots = NDArray[np.int64]


@dataclass(slots=True)
class DeliveryCounts:
    """The number of packets by the reason for their end."""

    ends: dict[Reason, int] = field(default_factory=dict)

    def add(self, reasons: NDArray[np.int64]) -> None:
        for reason, count in enumerate(np.bincount(reasons).tolist()):
            if count:
                self.ends[Reason(reason)] = self.ends.get(Reason(reason), 0) + count

    @property
    def sent(self) -> int:
        return sum(self.ends.values())

    @property
    def delivered(self) -> int:
        return self.ends.get(Reason.ARRIVED, 0)


class Attack:
    """The ports of partitions in a subnet, and the pairs of them that may or may not communicate."""

    def __init__(self, devices: Devices, slots: Slots, manager: int, allocation: Allocation, seed: int) -> None:
        """Set up the pairs. `manager` is the subnet manager's port, which all may reach."""
        self.devices, self._dice = devices, np.random.default_rng(seed)
        slots = slots[slots != manager]
        place = {int(devices.fabric.ports.guid[slot]): row for row, slot in enumerate(slots.tolist())}
        together, by_key = np.eye(len(slots), dtype=bool), np.zeros((len(slots), len(slots)), np.int64)
        for p_key, partition in allocation.partitions.items():
            full, member = (np.zeros(len(slots), bool) for _ in range(2))
            for guid, membership in partition.members.items():
                member[place[guid]], full[place[guid]] = True, membership.full
            talk = member[:, None] & member & (full[:, None] | full)
            together |= talk
            by_key[talk] = p_key | np.where(full, PKey.FULL_MEMBER, 0)[:, None].repeat(len(slots), 1)[talk]
        self.strangers = slots[np.argwhere(~together)]  # [pair, 0 sender | 1 receiver]
        friends = np.argwhere(together & ~np.eye(len(slots), dtype=bool))
        self.friends, self._keys_of_friends = slots[friends], by_key[tuple(friends.T)]
        self.tallies = {kind: DeliveryCounts() for kind in KINDS}
        self.controls_lost = 0  # while no fault was active
        self.counted = 0  # by switches, as P_Key violations
        # SMPs of a foreign subnet manager, and those that were executed
        self.foreign_sets = self.foreign_sets_taken = 0

    def send(self, count: int, *, is_calm: bool) -> None:
        """Send this many attempts, and a tenth as many within tenants; raw packets between all pairs that may not
        communicate.
        """
        counters = self.devices.fabric.counters
        constraints = [Counter.PORT_RCV_CONSTRAINT_ERRORS, Counter.PORT_XMIT_CONSTRAINT_ERRORS]
        before = int(counters[:, constraints].sum())
        for kind, part in zip(CROSSING, np.diff(np.linspace(0, count, 4).astype(int)).tolist(), strict=True):
            pairs = self._dice.choice(self.strangers, part)
            self._carry(kind, pairs, self._keys(kind, pairs))
        rows = self._dice.integers(len(self.friends), size=-(-count // 10))
        lost = self._carry(CONTROL, self.friends[rows], self._keys_of_friends[rows])
        self.controls_lost += lost if is_calm else 0
        self.tallies[RAW].add(carry_many(self.devices, self.strangers[:, 0], self._raw()).reason)
        self.counted += int(counters[:, constraints].sum()) - before

    def _carry(self, kind: str, pairs: Slots, p_keys: NDArray[np.int64]) -> int:
        """Send packets and return how many did not arrive."""
        reason = carry_many(self.devices, pairs[:, 0], self._packets(pairs, p_keys)).reason
        self.tallies[kind].add(reason)
        return int((reason != Reason.ARRIVED).sum())

    def _keys(self, kind: str, pairs: Slots) -> NDArray[np.int64]:
        if kind == GUESSED:
            return self._dice.integers(0x8001, 0x10000, size=len(pairs))
        held = self.devices.tables.pkey[pairs[:, 0 if kind == OWN else 1]].astype(np.int64)
        nth = (self._dice.random(len(pairs)) * np.maximum((held > 0).sum(axis=1), 1)).astype(np.int64)
        keys = np.take_along_axis(
            held, np.argsort(held == 0, axis=1, kind="stable")[np.arange(len(held)), nth][:, None], 1
        )
        # A full member's key reaches more ports than a limited one: an attacker would forge that.
        return keys[:, 0] | (PKey.FULL_MEMBER if kind == FORGED else 0)

    def _packets(self, pairs: Slots, p_keys: NDArray[np.int64]) -> Rows:
        """Return complete packets, half of them datagrams, half of connections."""
        count, lid = len(pairs), self.devices.tables.lid
        rows = np.zeros((count, _BYTES), np.uint8)
        words = (_BYTES - VCRC_BYTES) // 4
        levels, connected = self._dice.integers(SERVICE_LEVELS, size=count), self._dice.random(count) < 0.5
        rows[:, : LRH.size] = pack_rows(
            LRH, count, lnh=LNH.BTH, slid=lid[pairs[:, 0]], dlid=lid[pairs[:, 1]], sl=levels, pkt_len=words
        )
        opcodes = np.where(connected, int(Opcode.RC_SEND_ONLY), int(Opcode.UD_SEND_ONLY))
        bth = slice(LRH.size, LRH.size + BTH.size)
        rows[:, bth] = pack_rows(BTH, count, opcode=opcodes, dest_qp=_QP, p_key=p_keys)
        deth = slice(bth.stop, bth.stop + DETH.size)
        rows[~connected, deth] = pack_rows(DETH, int((~connected).sum()), q_key=_Q_KEY, src_qp=_QP)
        end = _BYTES - VCRC_BYTES
        rows[:, end - ICRC_BYTES : end] = _little(icrc(Route.LOCAL, rows, end - ICRC_BYTES), np.dtype("<u4"))
        rows[:, end:] = _little(vcrc(rows, end), np.dtype("<u2"))
        return rows

    def _raw(self) -> Rows:
        rows = pack_rows(LRH, len(self.strangers), lnh=LNH.RAW, pkt_len=(LRH.size + RWH.size + _PAYLOAD) // 4)
        fill(rows, LRH.dlid, self.devices.tables.lid[self.strangers[:, 1]])
        rows = np.pad(rows, ((0, 0), (0, RWH.size + _PAYLOAD + VCRC_BYTES)))
        end = rows.shape[1] - VCRC_BYTES
        rows[:, end:] = _little(vcrc(rows, end), np.dtype("<u2"))
        return rows


def _little(values: NDArray[np.uint32] | NDArray[np.uint16], form: np.dtype[np.generic]) -> Rows:
    return np.ascontiguousarray(values.astype(form)).view(np.uint8).reshape(len(values), -1)
