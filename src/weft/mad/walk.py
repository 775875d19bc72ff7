"""Walk a subnet by directed routes, a wave of MADs at a time, into arrays.

    wave 0      the node of this port                                    NodeInfo
    wave n      ports, name and so on of each new node                   PortInfo, SwitchInfo, NodeDescription
                the node behind each active port of a new switch         NodeInfo

Neither LIDs nor tables are needed. A node that is reached again is identified by its GUID, and its answer names the
port of arrival, which is one end of a cable. Every cable between switches is walked from both ends. Contradictions
(two nodes with one GUID, or a wrong answer) are in `oddities`, and no cable of these nodes is in `peer`. A cable that
was pulled or plugged meanwhile also contradicts: both ends are read again at the end. Only switches forward MADs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from weft.errors import SubnetError
from weft.mad.carrier import RETRIES, TIMEOUT_MS, Answers, Lids
from weft.wire.bulk import column, fill, pack_rows
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo, PortPhysicalState, PortState
from weft.wire.smp import HOPS_MAX, DirectedSmp, NodeInfo, NodeType, SmpAttribute

DATA = 64  # offset and length of an attribute in an SMP
_KEYS = 256  # a port of a node as one number: node * 256 + port
_PATH = 128  # offset of the initial path
_UNKNOWN = -1
Rows = NDArray[np.uint8]


class Exchanger(Protocol):
    """The part of a carrier that a walk uses."""

    def exchange(
        self, mads: Rows, to: Lids | None = None, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES
    ) -> Answers: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """A finding of a walk. `kind` is stable: duplicate-guid, loop, changed, silent, lying, ..."""

    kind: str
    text: str
    near: tuple[int, int] | None = None  # node and port before it
    path: bytes = b""  # to what is odd


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walk:
    """The result of a walk. Slots are laid out as in a Fabric: node by node, from port 0 to the last."""

    node_info: Rows  # uint8[node, 40], in the order of the walk; the first is our own
    switch_info: Rows  # uint8[node, 20]; zeros for what is no switch
    description: tuple[str, ...]
    path: Rows  # uint8[node, 64]: entry n is the port by which hop n leaves, entry 0 is not used
    hops: NDArray[np.uint8]
    first: NDArray[np.int64]  # [node] -> slot of its port 0
    port_info: Rows  # uint8[slot, 64]; zeros where none was read
    port_guid: NDArray[np.uint64]  # [slot]; 0 where no way came in
    peer: NDArray[np.int32]  # [slot] -> slot at the other end, -1 where there is none that both ends agree on
    start_port: int
    oddities: tuple[Oddity, ...]

    def __len__(self) -> int:
        return len(self.hops)


def directed(
    path: Rows,
    hops: NDArray[np.uint8],
    attribute: int,
    modifier: NDArray[np.int64] | int = 0,
    *,
    method: Method = Method.GET,
    data: Rows | None = None,
    m_key: int = 0,
) -> Rows:
    """Return SMPs along paths: uint8[n, 256]."""
    smps = pack_rows(DirectedSmp, len(path), method=int(method), attribute_id=int(attribute))
    fill(smps, DirectedSmp.attribute_modifier, modifier)
    if m_key:
        fill(smps, DirectedSmp.m_key, np.uint64(m_key))
    smps[:, 7] = hops
    smps[:, _PATH : _PATH + HOPS_MAX] = path
    if data is not None:
        smps[:, DATA : DATA + data.shape[1]] = data
    return smps


def statuses(answers: Rows) -> NDArray[np.int64]:
    """Return the status of each SMP, without the direction bit."""
    return column(answers, DirectedSmp.status).astype(np.int64)


def walk(carrier: Exchanger, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES, m_key: int = 0) -> Walk:
    """Walk everything that is reachable from the carrier's port; raise SubnetError if its own node does not answer."""
    walker = _Walker(carrier, timeout_ms, retries, m_key)
    walker.start()
    while len(walker.leaving):
        walker.wave()
    return walker.result()


@dataclass(slots=True)
class _Walker:
    carrier: Exchanger
    timeout_ms: int
    retries: int
    m_key: int
    index: dict[int, int] = field(default_factory=dict)  # GUID -> node
    node_info: list[Rows] = field(default_factory=list)  # a part for each wave, as are those below
    path: list[Rows] = field(default_factory=list)
    hops: list[NDArray[np.uint8]] = field(default_factory=list)
    switch_info: list[Rows] = field(default_factory=list)
    description: list[str] = field(default_factory=list)
    port_info: list[Rows] = field(default_factory=list)
    claims: list[NDArray[np.int64]] = field(default_factory=list)  # [n, 2]: key of the near port, of the far one
    guids: list[tuple[NDArray[np.int64], NDArray[np.uint64]]] = field(default_factory=list)  # ports by key
    oddities: list[Oddity] = field(default_factory=list)
    leaving: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # keys of ports to leave by
    leaving_path: Rows = field(default_factory=lambda: np.empty((0, HOPS_MAX), np.uint8))
    leaving_hops: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    start_port: int = 0

    # -- waves ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        path, hops = np.zeros((1, HOPS_MAX), np.uint8), np.zeros(1, np.uint8)
        infos, answered = self._get(path, hops, SmpAttribute.NODE_INFO)
        if not answered[0]:
            raise SubnetError("the node of this port does not answer NodeInfo: is it up?")
        self.start_port = int(column(infos, NodeInfo.local_port_num)[0])
        self._enter(np.full(1, _UNKNOWN, np.int64), infos, path, hops)

    def wave(self) -> None:
        """Query the nodes behind all ports of `leaving`."""
        near, path, hops = self.leaving, self.leaving_path, self.leaving_hops
        infos, answered = self._get(path, hops, SmpAttribute.NODE_INFO)
        for lost in np.flatnonzero(~answered).tolist():
            self._note("silent", "does not answer NodeInfo", int(near[lost]), path[lost, 1 : hops[lost] + 1])
        self._enter(near[answered], infos[answered], path[answered], hops[answered])

    def _enter(self, near: NDArray[np.int64], infos: Rows, path: Rows, hops: NDArray[np.uint8]) -> None:
        """Take note of who answered, and look at those that are new."""
        sane = self._sane(near, infos, path, hops)
        near, infos, path, hops = near[sane], infos[sane], path[sane], hops[sane]
        guid, port = column(infos, NodeInfo.node_guid), column(infos, NodeInfo.local_port_num).astype(np.int64)
        guids, example, inverse = np.unique(guid, return_index=True, return_inverse=True)
        new = np.array([node_guid not in self.index for node_guid in guids.tolist()], bool)
        order = np.argsort(example[new], kind="stable")  # in the order of the walk
        rows = example[new][order]
        first = len(self.index)
        for number, node_guid in enumerate(guid[rows].tolist(), first):
            self.index[node_guid] = number
        node = (
            np.array([self.index[node_guid] for node_guid in guids.tolist()], np.int64)[inverse] if len(guids) else port
        )
        far = node * _KEYS + port
        has_neighbor = near >= 0
        self.claims.append(np.stack((near[has_neighbor], far[has_neighbor]), axis=1))
        self.guids.append((far, column(infos, NodeInfo.port_guid)))
        self.leaving = np.empty(0, np.int64)
        if len(rows):
            self._look_at(first, infos[rows, : NodeInfo.size], path[rows], hops[rows])

    def _look_at(self, first: int, infos: Rows, path: Rows, hops: NDArray[np.uint8]) -> None:
        """Read new nodes: name, switch and ports; then the ports that lead on are `leaving`."""
        count = len(infos)
        switch = column(infos, NodeInfo.node_type) == NodeType.SWITCH
        ports = column(infos, NodeInfo.num_ports).astype(np.int64)
        slots = ports + 1
        begin = np.cumsum(slots) - slots
        owner = np.repeat(np.arange(count), slots)
        number = np.arange(int(slots.sum())) - begin[owner]
        is_queried = (number > 0) | switch[owner]  # an adapter has no port 0
        node_rows, switch_rows, port_rows = np.arange(count), np.flatnonzero(switch), owner[is_queried]
        smps = [
            directed(path[node_rows], hops[node_rows], SmpAttribute.NODE_DESCRIPTION, m_key=self.m_key),
            directed(path[switch_rows], hops[switch_rows], SmpAttribute.SWITCH_INFO, m_key=self.m_key),
            directed(path[port_rows], hops[port_rows], SmpAttribute.PORT_INFO, number[is_queried], m_key=self.m_key),
        ]
        answers, answered = self._exchange(np.concatenate(smps))
        names, switches, _ = np.split(answers[:, DATA : 2 * DATA], np.cumsum([len(part) for part in smps[:2]]))
        read = np.zeros((len(owner), DATA), np.uint8)
        read[is_queried] = answers[-len(port_rows) :, DATA : 2 * DATA]
        infos_of_switches = np.zeros((count, 20), np.uint8)
        infos_of_switches[switch_rows] = switches[:, :20]
        self.node_info.append(infos)
        self.path.append(path)
        self.hops.append(hops)
        self.switch_info.append(infos_of_switches)
        self.description += [row.tobytes().split(b"\0")[0].decode(errors="replace") for row in names]
        self.port_info.append(read)
        self._note_silence(first, path, hops, np.concatenate((node_rows, switch_rows, port_rows)), answered)
        self._leave_by(first, owner, number, read, switch, path, hops)

    def _leave_by(
        self,
        first: int,
        owner: NDArray[np.int64],
        number: NDArray[np.int64],
        infos: Rows,
        switch: NDArray[np.bool_],
        path: Rows,
        hops: NDArray[np.uint8],
    ) -> None:
        own = (hops[owner] == 0) & (number == self.start_port)  # an adapter is left by the port that we are at
        leads_on = is_up(infos) & (number > 0) & (switch[owner] | own) & (hops[owner] + 1 < HOPS_MAX)
        rows = np.flatnonzero(leads_on)
        self.leaving = (first + owner[rows]) * _KEYS + number[rows]
        self.leaving_path, self.leaving_hops = path[owner[rows]], hops[owner[rows]] + np.uint8(1)
        self.leaving_path[np.arange(len(rows)), self.leaving_hops] = number[rows]

    # -- MADs -------------------------------------------------------------------------------------------------------

    def _get(self, path: Rows, hops: NDArray[np.uint8], attribute: int) -> Answers:
        answers, answered = self._exchange(directed(path, hops, attribute, m_key=self.m_key))
        return answers[:, DATA : 2 * DATA], answered

    def _exchange(self, smps: Rows) -> Answers:
        answers, answered = self.carrier.exchange(smps, timeout_ms=self.timeout_ms, retries=self.retries)
        answered = answered & (statuses(answers) == 0)
        answers[~answered] = 0
        return answers, answered

    # -- what is odd ------------------------------------------------------------------------------------------------

    def _note(self, kind: str, text: str, near: int, path: Rows) -> None:
        before = divmod(near, _KEYS) if near >= 0 else None
        self.oddities.append(Oddity(kind=kind, text=text, near=before, path=path.tobytes()))

    def _sane(self, near: NDArray[np.int64], infos: Rows, path: Rows, hops: NDArray[np.uint8]) -> NDArray[np.bool_]:
        kind, ports = column(infos, NodeInfo.node_type), column(infos, NodeInfo.num_ports)
        port, guid = column(infos, NodeInfo.local_port_num), column(infos, NodeInfo.node_guid)
        sane = np.isin(kind, [int(node_type) for node_type in NodeType]) & (ports > 0) & (ports < 255) & (port <= ports)
        sane &= (guid != 0) & ((port > 0) | ((kind == NodeType.SWITCH) & (hops == 0)))
        for wrong in np.flatnonzero(~sane).tolist():
            text = (
                f"says that it is a node of type {kind[wrong]} with GUID 0x{guid[wrong]:016x}, "
                f"{ports[wrong]} ports, reached by port {port[wrong]}: that cannot be"
            )
            self._note("lying", text, int(near[wrong]), path[wrong, 1 : hops[wrong] + 1])
        return np.asarray(sane, bool)

    def _note_silence(
        self, first: int, path: Rows, hops: NDArray[np.uint8], owner: NDArray[np.int64], answered: NDArray[np.bool_]
    ) -> None:
        for node in np.unique(owner[~answered]).tolist():
            count = int((~answered & (owner == node)).sum())
            where = path[node, 1 : hops[node] + 1].tobytes()
            text = f"leaves {count} of its attributes unanswered"
            self.oddities.append(Oddity(kind="silent", text=text, near=(first + node, 0), path=where))

    # -- the end ----------------------------------------------------------------------------------------------------

    def result(self) -> Walk:
        node_info = np.concatenate(self.node_info)
        slots = column(node_info, NodeInfo.num_ports).astype(np.int64) + 1
        first = np.cumsum(slots) - slots
        guids = np.zeros(int(slots.sum()), np.uint64)
        for keys, values in self.guids:
            guids[first[keys // _KEYS] + keys % _KEYS] = values
        path, hops = np.concatenate(self.path), np.concatenate(self.hops)
        return Walk(
            node_info=node_info,
            switch_info=np.concatenate(self.switch_info),
            description=tuple(self.description),
            path=path,
            hops=hops,
            first=first,
            port_info=np.concatenate(self.port_info),
            port_guid=guids,
            peer=self._join(node_info, first, path, hops),
            start_port=self.start_port,
            oddities=tuple(self.oddities),
        )

    def _join(
        self, node_info: Rows, first: NDArray[np.int64], path: Rows, hops: NDArray[np.uint8]
    ) -> NDArray[np.int32]:
        """Turn claims into cables where no other claim contradicts them."""
        claims = np.concatenate((np.empty((0, 2), np.int64), *self.claims))
        near, far = (first[keys // _KEYS] + keys % _KEYS for keys in claims.T)
        n_slots = int(sum(len(infos) for infos in self.port_info))
        node_of = np.repeat(np.arange(len(first)), np.diff(np.append(first, n_slots)))
        switch = (column(node_info, NodeInfo.node_type) == NodeType.SWITCH)[node_of]
        claimed = np.full(n_slots, -1, np.int64)
        claimed[near] = far
        times = np.bincount(far, minlength=n_slots)
        loop = node_of[near] == node_of[far]
        told_back = claimed[far]
        agrees = (told_back == near) | ((told_back < 0) & ~switch[far])
        for row in np.flatnonzero(loop & (near <= far)).tolist():
            self._odd_cable("loop", "a cable leads from the switch to itself", node_of, first, near[row], far[row])
        doubted = np.flatnonzero(~loop & (~agrees | (times[far] > 1)))
        still = self._is_still_so(claims[doubted], node_info, path, hops)
        for row, is_so in zip(doubted.tolist(), still.tolist(), strict=True):
            kind, text = "changed", "the cable came or went in the middle of the sweep"
            if is_so:
                guid = int(column(node_info, NodeInfo.node_guid)[node_of[far[row]]])
                kind, text = "duplicate-guid", f"GUID 0x{guid:016x} is at more than one place, or lies"
            self._odd_cable(kind, text, node_of, first, near[row], far[row])
        good = agrees & (times[far] == 1) & ~loop
        peer = np.full(n_slots, -1, np.int32)
        peer[near[good]], peer[far[good]] = far[good], near[good]
        return peer

    def _is_still_so(
        self, claims: NDArray[np.int64], node_info: Rows, path: Rows, hops: NDArray[np.uint8]
    ) -> NDArray[np.bool_]:
        """Return [claim] -> whether the same node still answers behind the near port, and the far port is unchanged."""
        (node, port), (other, at) = (divmod(keys, _KEYS) for keys in claims.T)
        way, length = path[node].copy(), hops[node] + np.uint8(1)
        way[np.arange(len(way)), length] = port
        requests = np.concatenate(
            (
                directed(way, length, SmpAttribute.NODE_INFO, m_key=self.m_key),
                directed(path[other], hops[other], SmpAttribute.PORT_INFO, at, m_key=self.m_key),
            )
        )
        answers, answered = self._exchange(requests)
        node_infos, info = np.split(answers[:, DATA : 2 * DATA], 2)
        same = column(node_infos, NodeInfo.node_guid) == column(node_info[other], NodeInfo.node_guid)
        same &= column(node_infos, NodeInfo.local_port_num) == at
        slots = np.cumsum(column(node_info, NodeInfo.num_ports).astype(np.int64) + 1)
        before = np.concatenate(self.port_info)[np.append(0, slots)[other] + at]
        same &= is_up(info) == is_up(before)
        return np.asarray(same & np.logical_and(*np.split(answered, 2)), bool)

    def _odd_cable(
        self, kind: str, text: str, node_of: NDArray[np.int64], first: NDArray[np.int64], near: int, far: int
    ) -> None:
        node, other = int(node_of[near]), int(node_of[far])
        where = f"{text}: to port {far - first[other]}"
        self.oddities.append(Oddity(kind=kind, text=where, near=(node, int(near - first[node]))))


def is_up(infos: Rows) -> NDArray[np.bool_]:
    """Return [n] -> whether a MAD gets through this port."""
    up = column(infos, PortInfo.port_physical_state) == PortPhysicalState.LINK_UP
    return np.asarray(up & (column(infos, PortInfo.port_state) > PortState.DOWN), bool)
