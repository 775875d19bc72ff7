"""Send a MAD from a port of a fabric to its agents, and return the responses.

    subnet = Subnet(weft.load("fat-tree:hosts=16,radix=8"))
    reply = subnet.send(slot, smp)        the answer of an agent; None: a program has it, or `subnet.lost`
    subnet.due()                          send the traps that are due
    fate = subnet.send_packet(slot, raw)  a data packet, to the receiver of `attach_packets`; see `packets`

MADs that no agent answers (SMInfo, SA requests, traps) go to the program attached to the port by `attach`. Without a
program or a path, or if the packet is lost, there is no response, which a carrier reports as a timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from weft.fabric.model import Fabric
from weft.fabric.tables import PKEY_ENTRIES
from weft.ids import PKey
from weft.mad import cca, packets, pma, sma, transit
from weft.mad.carrier import SMP_CLASSES
from weft.mad.devices import NONE, MadPath
from weft.mad.power_up import switch_on
from weft.wire.mad import MAD_BYTES, RESPONSE, Method, MgmtClass
from weft.wire.smp import PERMISSIVE_LID, SmpAttribute

_DIRECTED = int(MgmtClass.SUBN_DIRECTED_ROUTE)
_NO_LIDS = b"\xff\xff\xff\xff"  # DrSLID and DrDLID
# Attributes of a subnet manager, not of an agent.
_FOR_PROGRAMS = (int(SmpAttribute.SM_INFO), int(SmpAttribute.NOTICE))
_UNANSWERED = (int(Method.SEND), int(Method.TRAP), int(Method.TRAP_REPRESS), int(Method.REPORT))
_AGENTS = {int(MgmtClass.PERF): pma.answer, int(MgmtClass.CONG_CTRL): cca.answer}
_WATCH_S = 1.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A MAD at the port of a program. `dlid` and `slid` are as its local route header has them."""

    slot: int
    slid: int
    dlid: int
    mad: bytes
    pkey_index: int = 0  # the P_Key that matched


Receiver = Callable[[Arrival], bool]  # False: it is not for me
PacketReceiver = Callable[[bytes], None]


class Subnet:
    """The devices, the paths between them, and the programs attached to them."""

    def __init__(self, fabric: Fabric, *, seed: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        self.devices = switch_on(fabric, seed=seed, clock=clock)
        self.deliver: Receiver = lambda arrival: False  # the server, for programs without a receiver here
        self.lost = False  # did the last MAD go nowhere?
        self.mads = 0  # that were sent so far
        # [slot, LID] of the last that came from there, no SMP: answers go by it.
        self.pkey_indexes: dict[tuple[int, int], int] = {}
        self._receivers: dict[int, list[Receiver]] = {}
        self._packet_receivers: dict[int, list[PacketReceiver]] = {}
        self._attached = 0
        self._watched_s = float("-inf")

    # -- programs ---------------------------------------------------------------------------------------------------

    def attach(self, slot: int, receiver: Receiver) -> int:
        """Deliver MADs at this port that no agent handles to the first receiver that accepts them.

        Return a number that no other receiver has.
        """
        self.devices.info(slot)  # refuses what is no port
        self._receivers.setdefault(slot, []).append(receiver)
        self._attached += 1
        return self._attached

    def detach(self, slot: int, receiver: Receiver) -> None:
        self._receivers[slot].remove(receiver)

    def _hand_over(self, at: int, slid: int, dlid: int, mad: bytearray, pkey_index: int = 0) -> None:
        arrival = Arrival(self.devices.own_slot(at), slid, dlid, bytes(mad), pkey_index)
        if mad[1] not in SMP_CLASSES:
            self.pkey_indexes[arrival.slot, slid] = pkey_index
        is_accepted = any(receiver(arrival) for receiver in list(self._receivers.get(arrival.slot, ())))
        self.lost = not (is_accepted or self.deliver(arrival))

    # -- MADs -------------------------------------------------------------------------------------------------------

    def send(
        self, slot: int, mad: bytes | bytearray, dlid: int = PERMISSIVE_LID, pkey_index: int | None = 0
    ) -> bytearray | None:
        """Send a MAD from a port; return the answer of an agent, or None if a program got it or it was lost (`lost`).

        A GMP uses the P_Key that the port has at this index; None: the P_Key of the MAD that it answers.
        """
        self.mads += 1
        if len(mad) != MAD_BYTES:
            self.devices.odd["size"] += 1
            self.lost = True
            return None
        if mad[1] != _DIRECTED:
            return self._send_by_lid(slot, bytearray(mad), dlid, pkey_index)
        devices = self.devices
        if mad[3] & RESPONSE or mad[32:36] != _NO_LIDS or devices.dead:
            return self._send_carefully(slot, bytearray(mad), dlid)
        hops = mad[7]
        initial_path = bytes(mad[129 : 129 + hops])
        path = devices.directed_paths.get((slot, initial_path)) or transit.directed_path(devices, slot, initial_path)
        if path is None:
            self.lost = True
            return None
        if devices.risky and not devices.risky.isdisjoint(path.out):
            return self._send_carefully(slot, bytearray(mad), dlid)
        if not path.listed:
            transit.note(devices, path)
        path.there += 1
        smp = bytearray(mad)
        smp[192 : 193 + hops] = path.entered
        if smp[17] in _FOR_PROGRAMS and not smp[16] and not self._for_agent(path.end, smp):
            self._hand_over(path.end, PERMISSIVE_LID, dlid, smp)
            return None
        generation = devices.generation
        if not sma.answer(devices, path.end, smp):
            self.lost = smp[3] not in _UNANSWERED
            return None
        if devices.generation == generation:  # the links of the path are still up
            if not path.listed:
                transit.note(devices, path)
            path.back += 1
            self.lost = False
        else:
            self.lost = not transit.travel_back(devices, path)
        return None if self.lost else smp

    def _send_carefully(self, slot: int, smp: bytearray, dlid: int) -> bytearray | None:
        """Send a directed SMP that is routed by LID in part, is a response, or may be lost."""
        devices = self.devices
        self.lost = True
        if devices.node_of[slot] in devices.dead:
            return None
        self._announce(smp, PERMISSIVE_LID, dlid)
        if smp[3] & RESPONSE:
            at = transit.go_back_directed(devices, slot, smp)
            if at != NONE:
                self._hand_over(at, PERMISSIVE_LID, dlid, smp)
            return None
        trip = transit.combined(devices, slot, smp, dlid)
        if trip is None:
            return None
        smp[192 : 192 + len(trip.entered)] = trip.entered
        if smp[17] in _FOR_PROGRAMS and not smp[16] and not self._for_agent(trip.end, smp):
            self._hand_over(trip.end, PERMISSIVE_LID, dlid, smp)
            return None
        if not sma.answer(devices, trip.end, smp):
            self.lost = smp[3] not in _UNANSWERED
            return None
        self._announce(smp, PERMISSIVE_LID, dlid)
        self.lost = not transit.return_trip(devices, trip, slot)
        return None if self.lost else smp

    def _send_by_lid(self, slot: int, mad: bytearray, dlid: int, pkey_index: int | None = 0) -> bytearray | None:
        devices, smp = self.devices, mad[1] in SMP_CLASSES
        self.lost = True
        if devices.node_of[slot] in devices.dead:
            return None
        at, index, slid = devices.own_slot(slot), 0, devices.lid(slot)
        self._announce(mad, slid, dlid)
        if dlid != PERMISSIVE_LID:
            path = transit.lid_path(devices, slot, dlid, smp)
            index = 0 if smp or path is None else self._matched(at, path, mad, dlid, pkey_index)
            if path is None or index == NONE or not transit.travel(devices, path):
                return None
            at = path.end
        agent = sma.answer if smp else _AGENTS.get(mad[1])
        program = smp and mad[17] in _FOR_PROGRAMS and not mad[16] and not self._for_agent(at, mad)
        if agent is None or program or mad[3] & RESPONSE:
            self._hand_over(at, slid, dlid, mad, index)
            return None
        if not agent(devices, at, mad):
            self.lost = mad[3] not in _UNANSWERED
            return None
        if dlid == PERMISSIVE_LID:
            self.lost = False
        else:
            path = transit.lid_path(devices, at, slid, smp)
            self._announce(mad, dlid, slid)
            self.lost = path is None or not transit.travel(devices, path)
        return None if self.lost else mad

    def _announce(self, mad: bytearray, slid: int, dlid: int) -> None:
        if self.devices.tap is not None:
            self.devices.tap.announce(mad, slid, dlid)

    def _matched(self, slot: int, path: MadPath, mad: bytearray, dlid: int, pkey_index: int | None) -> int:
        """Return the index of the P_Key that a GMP matches at its destination; NONE, and counted, if none does.

        An agent answers with the same key; two keys that match do so in both directions.
        """
        devices = self.devices
        if pkey_index is None:
            pkey_index = self.pkey_indexes.get((slot, dlid), 0)
        p_key = int(devices.tables.pkey[slot, pkey_index]) if pkey_index < PKEY_ENTRIES else 0
        index = packets.index_at_end(devices, path, p_key)
        if index == NONE and p_key:  # an adapter does not send by an index that is empty
            packets.refuse_gmp(devices, slot, mad, dlid, p_key)
        return index

    def default_pkey_index(self, slot: int) -> int:
        """Return the index of Default's P_Key, which kernels use for the subnet administrator; 0 if there is none."""
        keys = self.devices.tables.pkey[slot]
        if int(keys[0]) | PKey.FULL_MEMBER == PKey.DEFAULT:
            return 0
        return int((keys | PKey.FULL_MEMBER == PKey.DEFAULT).argmax())

    def _for_agent(self, at: int, smp: bytearray) -> bool:
        """Return whether an agent handles this SMInfo or Notice: TrapRepress, or a query without a subnet manager."""
        slot = self.devices.own_slot(at)
        has_manager = self.devices.has_manager(slot)
        if smp[3] == Method.TRAP_REPRESS:  # managers send traps too: to each other
            return self.devices.traps.knows(slot, smp) or not has_manager
        if smp[3] not in (Method.GET, Method.SET):
            return False
        return smp[17] == SmpAttribute.NOTICE or not has_manager

    def may_set(self) -> bool:
        """Return whether a kernel may execute Sets: not if programs receive packets, which get each change."""
        return not any(self._packet_receivers.values())

    # -- packets ----------------------------------------------------------------------------------------------------

    def attach_packets(self, slot: int, receiver: PacketReceiver) -> None:
        """Deliver data packets that reach this port to all its receivers, as the last link transmitted them."""
        self.devices.info(slot)
        self._packet_receivers.setdefault(slot, []).append(receiver)

    def detach_packets(self, slot: int, receiver: PacketReceiver) -> None:
        self._packet_receivers[slot].remove(receiver)

    def send_packet(self, slot: int, packet: bytes) -> packets.DeliveryResult:
        """Send a packet from a port. It counts as delivered when the port accepts it, also without a receiver."""
        return self._deliver_packets(packets.carry(self.devices, slot, packet))

    def learn_neighbor(self, slot: int, gid: int, dlid: int, sl: int) -> None:
        """Store the path from a router port to a GID, DLID 0 for none, and send on the packets that wait for it."""
        for at, packet in self.devices.routers.learn(slot, gid, dlid, sl):
            self._deliver_packets(packets.carry_on(self.devices, at, packet))

    def _deliver_packets(self, result: packets.DeliveryResult) -> packets.DeliveryResult:
        for at, vl in zip(result.delivered, result.vls, strict=True):
            for receiver in list(self._packet_receivers.get(at, ())):
                receiver(packets.as_received(result.packet, vl))
        return result

    # -- traps ------------------------------------------------------------------------------------------------------

    def due(self, now_s: float | None = None) -> float | None:
        """Send the traps that are due, to the subnet manager each port knows; when the next is, None if none waits."""
        devices = self.devices
        now_s = devices.clock() if now_s is None else now_s
        if now_s - self._watched_s >= _WATCH_S:
            self._watched_s = now_s
            devices.traps.watch(devices)
            devices.routers.watch(devices.traps)
        for slot, mad, dlid in devices.traps.due(devices, now_s):
            self._send_by_lid(slot, bytearray(mad), dlid)
        return devices.traps.next_s()

    def lid(self, slot: int) -> int:
        return self.devices.lid(slot)
