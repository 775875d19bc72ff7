"""Collect the packets at captured ports slice by slice, and describe them as frames."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.sim.engine import Network
from weft.sim.frames import Frames
from weft.sim.layout.records import Records
from weft.sim.layout.rules import RULES
from weft.sim.packet.plan import PacketPlan
from weft.sim.packet.state import FRAME, PART_BITS, Carries, State
from weft.sim.traffic import Operation, Traffic, Transport
from weft.wire.headers import Opcode
from weft.wire.opcodes import EXTENDED_HEADERS

NETWORKS = (Network.INFINIBAND, Network.ROCE, Network.ROCE_V1)
MOST_FRAMES = 10_000_000
_FIRST_QP = 0x40  # 0 and 1 are for management
_PSN_MASK = 0xFFFFFF


def _by_place(kind: str) -> tuple[Opcode, ...]:
    """Return the opcodes of a message of one packet, and of the first, middle and last packet of a longer one."""
    return tuple(Opcode[f"{kind}_{place}"] for place in ("ONLY", "FIRST", "MIDDLE", "LAST"))


_OPCODES = {
    (Transport.RC, Operation.WRITE): _by_place("RC_RDMA_WRITE"),
    (Transport.RC, Operation.SEND): _by_place("RC_SEND"),
    (Transport.RC, Operation.READ): _by_place("RC_RDMA_READ_RESPONSE"),
    (Transport.UC, Operation.WRITE): _by_place("UC_RDMA_WRITE"),
    (Transport.UC, Operation.SEND): _by_place("UC_SEND"),
    (Transport.UD, Operation.WRITE): (Opcode.UD_SEND_ONLY,) * 4,
    (Transport.UD, Operation.SEND): (Opcode.UD_SEND_ONLY,) * 4,
}


class Capture:
    """The captured packets of a run so far."""

    def __init__(self, packet_plan: PacketPlan) -> None:
        self._plan = packet_plan
        options = packet_plan.options
        if options.capture and options.network not in NETWORKS:
            raise ConfigError(f"--capture is for {', '.join(NETWORKS)}, not for {options.network}: leave it out")
        if options.capture and packet_plan.wiring.fabric.tables.subnet is not None:
            raise ConfigError("--capture is for a fabric of one subnet: leave it out")
        self._parts: list[Records] = []
        self._count = 0

    def take(self, state: State) -> None:
        """Take over the packets of a slice."""
        n = int(state.run.frames[0])
        if n:
            self._parts.append(state.frames[:n].copy())
            self._count += n
            state.run.frames = 0
        if self._count > MOST_FRAMES:
            raise ConfigError(f"--capture has recorded {self._count:,} packets (limit {MOST_FRAMES:,}): send less")

    def result(self, traffic: Traffic) -> Frames | None:
        """Return the frames, or None if no port is captured."""
        if not self._plan.options.capture:
            return None
        rows = np.concatenate(self._parts) if self._parts else np.zeros(0, FRAME)
        return _frames(self._plan, traffic, rows)


def _frames(packet_plan: PacketPlan, traffic: Traffic, rows: NDArray[np.void]) -> Frames:
    wiring, posting, state = packet_plan.wiring, packet_plan.posting, packet_plan.state
    network = Network(str(packet_plan.options.network))
    n_vls = int(state.run.n_vls[0])
    message = posting.messages[rows["message"]]
    is_data = rows["carries"] == Carries.DATA
    left = wiring.ports.peer[rows["buffer"] // n_vls]
    names, leaves = np.unique(left, return_inverse=True)
    opcode = _opcodes(traffic, rows, message, network)
    qp = _FIRST_QP + 2 * message["qp"].astype(np.int64)
    whose = _rows_of_traffic(traffic, rows["message"])
    return Frames(
        network=network,
        port=tuple(wiring.name(int(port)) for port in names),
        time_ps=rows["time_ps"],
        leaves=leaves,
        vl=rows["buffer"] % n_vls,
        sl=rows["sl"] & ((1 << PART_BITS) - 1),
        source=_addresses(packet_plan, np.where(is_data, message["src"], message["dst"])),
        destination=rows["dlid"].astype(np.int64),
        source_qp=np.where(is_data, qp, qp + 1),
        destination_qp=np.where(is_data, qp + 1, qp),
        opcode=opcode,
        psn=rows["psn"] & _PSN_MASK,
        payload_bytes=np.where(is_data, rows["bytes"] - RULES[network].header_bytes - _extended_bytes(opcode), 0),
        message_bytes=traffic.size_bytes[whose],
        marked=(rows["marked"] > 0) | (rows["carries"] == Carries.CNP),
        is_nak=rows["carries"] == Carries.NAK,
        asks_ack=is_data & (rows["psn"] == message["first_psn"] + message["packets"] - 1),
    )


def _addresses(packet_plan: PacketPlan, ports: NDArray[np.int64]) -> NDArray[np.int64]:
    wiring = packet_plan.wiring
    return wiring.fabric.tables.lid[wiring.slot[ports]].astype(np.int64)


def _rows_of_traffic(traffic: Traffic, messages: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the rows of messages; after those of the traffic come the answers to its reads."""
    reads = np.flatnonzero(traffic.operation == Operation.READ)
    return np.concatenate((np.arange(len(traffic)), reads))[messages]


def _opcodes(traffic: Traffic, rows: NDArray[np.void], message: Records, network: Network) -> NDArray[np.int64]:
    place = rows["psn"].astype(np.int64) - message["first_psn"]
    last = message["packets"] - 1
    at = np.select([last == 0, place == 0, place == last], [0, 1, 3], 2)
    whose = _rows_of_traffic(traffic, rows["message"])
    opcode = np.zeros(len(rows), np.int64)
    for (transport, operation), row in _OPCODES.items():
        mine = (traffic.transport[whose] == transport) & (traffic.operation[whose] == operation)
        opcode[mine] = np.array(row)[at[mine]]
    is_request = (traffic.operation[whose] == Operation.READ) & (rows["message"] < len(traffic))
    opcode[is_request] = Opcode.RC_RDMA_READ_REQUEST
    carries = rows["carries"]
    opcode[(carries == Carries.ACK) | (carries == Carries.NAK)] = Opcode.RC_ACKNOWLEDGE
    opcode[carries == Carries.CNP] = Opcode.RC_ACKNOWLEDGE if network is Network.INFINIBAND else Opcode.CNP
    return opcode


def _extended_bytes(opcode: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bytes of the extended headers of each packet."""
    sizes = np.zeros(256, np.int64)
    for code, kinds in EXTENDED_HEADERS.items():
        sizes[code] = sum(kind.size for kind in kinds)
    return sizes[opcode]
