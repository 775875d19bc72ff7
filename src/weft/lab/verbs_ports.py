"""Programs' adapters at the ports of a lab: whose packet it is, what the subnet manager has set, questions to the SA.

    program = ports.attach(slot, push)         a program opened the adapter; `push` takes frames for it
    ports.send(program, packets)               they go as far as the fabric lets them, by weft.mad.packets
    ports.look()                               tell programs what changed at their ports

All programs of a host share its port. Each has a number, the upper part of the numbers of its queue pairs, so a packet
says whose it is. What is for a group, or for queue pair 1, goes to all: only they know who it is for.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from weft.errors import ConfigError
from weft.fabric.forwarding import NONE
from weft.ids import Lid
from weft.lab.adapters import Role, adapters_of, first_adapters
from weft.lab.agents import Agent, Agents
from weft.lab.ethernet_ports import ethernet_facts
from weft.lab.metered_paths import MeteredPaths, Meters
from weft.lab.planes import choose_port, leading_port, ports_of, usable_ports, whole_info
from weft.mad.packets import bad_p_key, bad_q_key
from weft.mad.subnet import Subnet
from weft.verbs.carriers.lab.connection import GUIDS_BYTES, QUEUE_PAIR_BITS, Event, Kind, frame, packets_frame
from weft.verbs.carriers.lab.ethernet_facts import mapped
from weft.verbs.carriers.lab.ethernet_frames import ROCE_BTH_AT, is_roce
from weft.wire.headers import BTH, GRH, LNH, LRH
from weft.wire.mad import Method, MgmtClass, Status
from weft.wire.packet import bth_at
from weft.wire.port_info import PortInfo
from weft.wire.sa import PathRecord, SaAttribute, SaMad
from weft.wire.sa_query import component_mask
from weft.wire.smp import NodeInfo

PROGRAMS_MAX = 255  # at a port; 0xFF would make numbers of groups
_GSI, _GROUP = 1, 0xFF_FFFF
_SA_TIMEOUT_MS, _SA_RETRIES = 400, 3
_SA_VERSION = 2
_GUID = (1 << 64) - 1  # low half of a GID


@dataclass(slots=True, eq=False, kw_only=True)
class Program:
    """A program that has a port open. `coming` are packets that are not delivered yet."""

    number: int
    slot: int
    push: Callable[[bytes], object]
    meters: Meters
    coming: list[bytes] = field(default_factory=list)
    turn: int = 0  # packets sent, by which planes take turns


@dataclass(slots=True, eq=False)
class _Port:
    """A port that programs have open."""

    programs: dict[int, Program]
    facts: bytes
    receiver: Callable[[bytes], None]


class VerbsPorts:
    def __init__(self, subnet: Subnet, agents: Agents, metered_paths: MeteredPaths) -> None:
        self.subnet, self.devices, self.metered_paths, self._agents = subnet, subnet.devices, metered_paths, agents
        self._ports: dict[int, _Port] = {}  # by slot
        self._asking: dict[int, Agent] = {}  # slot -> program that queries the SA
        self._questions: dict[tuple[int, int], Callable[[bytes | None], None]] = {}  # by slot and transaction
        self._transactions = itertools.count(1)
        self.devices.routers.ask = self._ask_for_path

    def slots(self) -> list[int]:
        """Return the slot of every port, once for each program that has it open."""
        return [program.slot for port in self._ports.values() for program in port.programs.values()]

    # -- programs -----------------------------------------------------------------------------------------------------

    def attach(self, slot: int, push: Callable[[bytes], object]) -> Program:
        port = self._ports.get(slot)
        if port is None:
            port = self._ports[slot] = _Port({}, self.facts(slot), lambda packet: self._arrived(slot, packet))
            if slot in self.devices.ethernet:
                self.devices.ethernet.attach(slot, port.receiver)
            else:
                for plane in ports_of(self.devices, slot):
                    self.subnet.attach_packets(plane, port.receiver)
        number = next((n for n in range(PROGRAMS_MAX) if n not in port.programs), None)
        if number is None:
            raise ConfigError(f"{PROGRAMS_MAX} programs have {self.devices.name(slot)} open: end one of them")
        program = port.programs[number] = Program(number=number, slot=slot, push=push, meters=Meters())
        return program

    def detach(self, program: Program) -> None:
        port = self._ports[program.slot]
        del port.programs[program.number]
        self.metered_paths.forget(program.meters)
        if not port.programs:
            if program.slot in self.devices.ethernet:
                self.devices.ethernet.detach(program.slot)
            else:
                for plane in ports_of(self.devices, program.slot):
                    self.subnet.detach_packets(plane, port.receiver)
            del self._ports[program.slot]

    def wake(self, guid: int, number: int) -> None:
        """Tell a program that another put something into its queues."""
        for slot, port in self._ports.items():
            if number in port.programs and int.from_bytes(self.devices.port_guid(slot), "big") == guid:
                port.programs[number].push(frame(Kind.EVENT, bytes((Event.RING,))))

    def metered_path(self, program: Program, meter: int, **parameters: Any) -> dict[str, int]:
        """Open a meter, if the path is clean.

        Return the GUID of the port at its end, 0 if it is not clean, with the SLID and hop limit that arrive there.
        """
        way = self.metered_paths.open(program.meters, meter, program.slot, **parameters)
        if way is None:
            return {"guid": 0}
        guid = int.from_bytes(self.devices.port_guid(way.path.end), "big")
        return {"guid": guid, "slid": way.slid, "hop_limit": way.hop_limit}

    # -- packets ------------------------------------------------------------------------------------------------------

    def send(self, program: Program, packets: list[bytes]) -> None:
        if program.slot in self.devices.ethernet:
            for packet in packets:
                self.devices.ethernet.send(program.slot, packet)
            return
        is_planarized = len(ports_of(self.devices, program.slot)) > 1
        for packet in packets:
            to_group = len(packet) > LRH.size and Lid.FIRST_MULTICAST <= LRH.dlid.get(packet) < Lid.PERMISSIVE
            slot = self._next_plane(program, packet, to_group) if is_planarized else program.slot
            self.subnet.send_packet(slot, packet)
            if to_group and self.devices.is_active(slot):
                self._arrived(program.slot, packet)  # the fabric returns nothing: an adapter gives its own a copy

    def _next_plane(self, program: Program, packet: bytes, to_group: bool) -> int:
        """Return the port by which a packet leaves: planes take turns, but a group is in one of them."""
        if to_group or len(packet) <= LRH.size:
            return leading_port(self.devices, program.slot)
        program.turn += 1
        has_grh = LRH.lnh.get(packet) == LNH.GRH
        return choose_port(
            self.devices,
            program.slot,
            program.turn,
            dlid=LRH.dlid.get(packet),
            sl=LRH.sl.get(packet),
            dgid=GRH.dgid.get(packet, LRH.size) if has_grh else NONE,
            hop_limit=GRH.hop_lmt.get(packet, LRH.size) if has_grh else 0,
        )

    def on_bad_key(self, program: Program, packet: bytes, *, is_q_key: bool) -> None:
        """Count a packet that a queue pair dropped because of its key, and send a trap."""
        if (bth := bth_at(packet)) <= 0:
            return
        number = BTH.dest_qp.get(packet, bth)
        if number in (_GSI, _GROUP) or number >> QUEUE_PAIR_BITS == program.number:
            (bad_q_key if is_q_key else bad_p_key)(self.devices, program.slot, packet)

    def _arrived(self, slot: int, packet: bytes) -> None:
        if slot in self.devices.ethernet and not is_roce(packet):
            for program in self._ports[slot].programs.values():
                program.coming.append(packet)
            return
        if (bth := ROCE_BTH_AT if slot in self.devices.ethernet else bth_at(packet)) <= 0:
            return
        programs, number = self._ports[slot].programs, BTH.dest_qp.get(packet, bth)
        if number in (_GSI, _GROUP):
            for program in programs.values():
                program.coming.append(packet)
        elif number >> QUEUE_PAIR_BITS in programs:
            programs[number >> QUEUE_PAIR_BITS].coming.append(packet)

    def deliver(self) -> None:
        """Give all programs what came for them, each in one frame."""
        for port in self._ports.values():
            for program in port.programs.values():
                if program.coming:
                    program.push(packets_frame(program.coming))
                    program.coming.clear()

    # -- what a port is -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Tell programs what is new about their ports."""
        for slot, port in self._ports.items():
            facts = self.facts(slot)
            if facts != port.facts:
                port.facts = facts
                for program in port.programs.values():
                    program.push(frame(Kind.PORT, facts))
            if slot in self.devices.reregister:
                self.devices.reregister.discard(slot)
                for program in port.programs.values():
                    program.push(frame(Kind.EVENT, bytes((Event.CLIENT_REREGISTER,))))

    def facts(self, slot: int) -> bytes:
        """Return the facts of a port, as `weft.verbs.carriers.lab.port_facts` reads them."""
        devices = self.devices
        if slot in devices.ethernet:
            return ethernet_facts(devices, slot).pack()
        info, slot = whole_info(devices, slot), leading_port(devices, slot)
        guids = devices.alias_guids.get(slot) or devices.port_guid(slot).ljust(GUIDS_BYTES, b"\0")
        return bytes(info) + bytes(guids) + bytes(devices.tables.pkey[slot].astype("<u2"))

    def devices_of(self, host: str) -> list[dict[str, object]]:
        """Return the devices of a host: one for each port of each adapter."""
        return [self._device(name, slot) for name, slot in self._slots_of(host).items()]

    def find(self, host: str, device: str) -> int:
        """Return the slot of a host's device."""
        slots = self._slots_of(host)
        if device not in slots:
            raise ConfigError(f"{host} has no adapter {device}: there is {', '.join(slots)}")
        return slots[device]

    def find_host(self, host: str = "", number: int = 0, guid: int = 0) -> dict[str, object]:
        """Return a host by name, number (from 1) or GUID, with the GID of its first port."""
        for place, node in enumerate(first_adapters(self.devices), 1):
            gid = self._gid(self.devices.slot(node, 1))
            if place == number or gid & _GUID == guid or (host and adapters_of(self.devices, host)[0].node == node):
                return {"number": place, "gid": gid}
        raise ConfigError(f"there is no host {host or number or hex(guid)}")

    def _gid(self, slot: int) -> int:
        """Return the GID of a port: on Ethernet its IPv4 address, mapped."""
        devices = self.devices
        if slot in devices.ethernet:
            return mapped(devices.ethernet.address[slot])
        prefix = PortInfo.gid_prefix.get(devices.info(leading_port(devices, slot)))
        return prefix << 64 | int.from_bytes(devices.port_guid(slot), "big")

    def _slots_of(self, host: str) -> dict[str, int]:
        """Return slots by device. A device has one port; a second port's device is named after both."""
        slots = {}
        for adapter in adapters_of(self.devices, host):
            if self.devices.is_switch[adapter.node]:
                raise ConfigError(f"{host} is a switch: RDMA programs run on hosts")
            if adapter.role is Role.SMI:
                continue
            for port in range(adapter.first_port, adapter.last_port + 1):
                name = adapter.name if port == adapter.first_port else f"{adapter.name}.{port}"
                slots[name] = self.devices.slot(adapter.node, port)
        return slots

    def _device(self, name: str, slot: int) -> dict[str, object]:
        info = self.devices.node_info[self.devices.node_of[slot]]
        return {
            "name": name,
            "node_guid": NodeInfo.node_guid.get(info),
            "system_guid": NodeInfo.system_image_guid.get(info),
            "is_ethernet": slot in self.devices.ethernet,
        }

    # -- the subnet administrator -------------------------------------------------------------------------------------

    def ask_administrator(self, slot: int, mad: bytes, answer: Callable[[bytes | None], None]) -> None:
        """Send it a MAD from a port; `answer` gets the response, or None.

        For a path that the administrator of the first plane does not know, that of the next one is asked.
        """
        planes = usable_ports(self.devices, slot) or [leading_port(self.devices, slot)]
        if SaMad.unpack(mad).attribute_id != SaAttribute.PATH_RECORD:
            planes = planes[:1]

        def ask(place: int) -> None:
            def take(response: bytes | None) -> None:
                known = response is not None and SaMad.unpack(response).status in (Status.OK, Status.BUSY)
                if known or place + 1 == len(planes):
                    answer(response)
                else:
                    ask(place + 1)

            self._ask(planes[place], mad, take)

        ask(0)

    def _ask(self, slot: int, mad: bytes, answer: Callable[[bytes | None], None]) -> None:
        if slot not in self._asking:
            asking = Agent(
                slot=slot,
                push=lambda message, lid, status, pkey_index: self._on_answer(slot, message, status),
                mgmt_class=MgmtClass.SUBN_ADM,
                version=_SA_VERSION,
                methods=0,
                oui=0,
                does_rmpp=False,
            )
            self._asking[slot] = self._agents.register(asking)
        transaction = next(self._transactions) & 0xFFFF_FFFF
        lid = PortInfo.master_sm_lid.get(self.devices.info(slot))
        if not lid:
            answer(None)
            return
        self._questions[slot, transaction] = answer
        message = mad[:12] + transaction.to_bytes(4, "big") + mad[16:]
        index = self._agents.subnet.default_pkey_index(slot)  # as a kernel does, whatever is at index 0
        self._agents.send(self._asking[slot], message, lid, _SA_TIMEOUT_MS, _SA_RETRIES, index)

    def _ask_for_path(self, slot: int, gid: int) -> None:
        """Ask the administrator for the path from a router port to a GID of its subnet."""
        own = self.devices.routers.prefix(slot) << 64 | int.from_bytes(self.devices.port_guid(slot), "big")
        mask = component_mask(PathRecord, "dgid", "sgid", "numb_path")
        query = SaMad(
            method=Method.GET,
            attribute_id=SaAttribute.PATH_RECORD,
            component_mask=mask,
            data=PathRecord(dgid=gid, sgid=own, numb_path=1).raw,
        )

        def learn(answer: bytes | None) -> None:
            response = SaMad.unpack(answer) if answer is not None else None
            if response is None or response.status == Status.BUSY:
                return  # the last answer stays, and the next packet asks again
            path = PathRecord() if response.status else PathRecord.unpack(response.data)
            self.subnet.learn_neighbor(slot, gid, path.dlid, path.sl)

        self.ask_administrator(slot, query.raw, learn)

    def _on_answer(self, slot: int, message: bytes, status: int) -> None:
        answer = self._questions.pop((slot, int.from_bytes(message[12:16], "big")), None)
        if answer is not None:
            answer(None if status == errno.ETIMEDOUT else message)
