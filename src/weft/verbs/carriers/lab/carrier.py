"""A port of a lab: packets go to the lab, which carries them hop by hop by the tables that the subnet manager wrote.

    LRH [GRH] BTH ... ICRC VCRC        whole packets; what becomes of them is said in weft.mad.packets

Nothing is delivered that the fabric does not let through: a port that is not Active, a switch without a route, a P_Key
that does not match lose a packet, and a bad cable hurts it. All ports on the way count.

An address is an `AddressVector`: to a LID, with a global route if there is one. The connection manager knows GIDs
alone: for those the carrier asks the subnet administrator for the path.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from weft.errors import ConfigError, SubnetError
from weft.verbs.carriers.lab.connection import Line
from weft.verbs.carriers.lab.line_carrier import LineCarrier
from weft.verbs.carriers.lab.memory_grants import MemoryGrants, PathEnd
from weft.verbs.carriers.lab.paths import AddressVector, Paths, group_of
from weft.verbs.carriers.lab.port_facts import Facts, events_between
from weft.verbs.carriers.loopback import EMPTY_BYTES
from weft.verbs.enums import ibv_event_type
from weft.verbs.hca.carrier import Arrival, Sender
from weft.verbs.hca.packets import decode, encode
from weft.verbs.hca.segment import Segment
from weft.verbs.shm.native import vcrc
from weft.wire.crc import ICRC_BYTES, VCRC_BYTES, Route, icrc_bytes
from weft.wire.format import Format, Malformed
from weft.wire.headers import BTH, GRH, GRH_NEXT_HEADER, LNH, LRH
from weft.wire.packet import bth_at, read_transport

_LRH = struct.Struct(">BBHHH")
_LATE_S = 0.5  # for an answer of the lab about an answer that is late
_PAD_SHIFT = 4  # pad count in the second byte of a BTH


class LabCarrier(LineCarrier[Facts]):
    """A carrier to a lab from an InfiniBand port."""

    def __init__(self, line: Line, program: int, facts: Facts, grants: MemoryGrants | None) -> None:
        super().__init__(line, program, facts, grants)
        self.paths = Paths(line, lambda: self.facts)
        _vcrc_bytes(bytes(LRH.size))  # the kernel is loaded before a connection's clock runs

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, segment: Segment, to: object, mtu_bytes: int) -> None:
        if not segment.p_key & 0x7FFF or not self.facts.info.lid or not self.facts.is_active:
            return  # an adapter does not send by an entry that is empty, nor without a LID, nor while its port is down
        av = self.paths.to(to) if isinstance(to, tuple) else to
        if isinstance(av, AddressVector):  # else there is no path
            slid = self._slid(av)
            self.line.put([_packet(av, slid, headers, payload) for headers, payload in encode(segment, mtu_bytes)])

    def _slid(self, av: AddressVector) -> int:
        info = self.facts.info
        return int(info.lid | av.path_bits & (1 << info.lmc) - 1)

    def join(self, address: int, own_gid: int) -> int | None:
        group = group_of(address, self.facts.p_keys[0])
        return group if self.paths.join((group, own_gid)) is not None else None

    def leave(self, group: int, own_gid: int) -> None:
        self.paths.leave((group, own_gid))

    def has_not_taken(self, to: object, dest_qp: int) -> bool:
        """Ask the lab whether the peer has unread packets; its response may arrive meanwhile."""
        if self.line.is_down or not isinstance(to, AddressVector):
            return False
        try:
            said = self.line.ask("has_not_taken", _LATE_S, dest_qp=dest_qp, **_to(to))
        except ConfigError:
            return False
        except SubnetError:  # it is the lab that is behind, or gone
            return not self.line.is_down
        return bool(said["has_not_taken"]) or not self.line.is_idle

    def why_lost(self, to: object, p_key: int, mtu_bytes: int) -> str:
        if not isinstance(to, AddressVector):
            return ""
        try:
            return str(self.line.ask("why_lost", p_key=p_key, mtu_bytes=mtu_bytes, **_to(to))["why"])
        except (ConfigError, SubnetError) as error:
            return str(error)

    def report_bad_key(self, arrival: Arrival, *, is_q_key: bool) -> None:
        self.line.report_bad_key(arrival.packet, is_q_key=is_q_key)

    def sender_to(self, to: AddressVector, end: PathEnd) -> Sender:
        """Return this end as the peer sees it: behind routers packets have another SLID, and a lower hop limit."""
        slid = self._slid(to) if end.hop_limit == to.hop_limit else end.slid
        grh = bytes(GRH.size) if to.gids is None else _route(replace(to, hop_limit=end.hop_limit), EMPTY_BYTES)
        return Sender(source=AddressVector(slid, to.gids and to.gids[::-1]), grh=grh, slid=slid, sl=to.sl)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def unpack_facts(self, raw: bytes) -> Facts:
        return Facts.unpack(raw)

    def events_to(self, facts: Facts) -> list[ibv_event_type]:
        self.paths.forget()
        return list(events_between(self.facts, facts))

    def arrival(self, packet: bytes) -> Arrival:
        return _arrival(packet)


def _to(av: AddressVector) -> dict[str, int]:
    """Return an address as the lab's questions have it."""
    return {"lid": av.lid, "sl": av.sl} | ({"dgid": av.gids[0], "hop_limit": av.hop_limit} if av.gids else {})


# -- packets ----------------------------------------------------------------------------------------------------------


def _packet(av: AddressVector, slid: int, headers: tuple[Format, ...], payload: bytes) -> bytes:
    """Return the bytes of a packet; a test compares it with `weft.wire.packet`."""
    pad = -len(payload) % 4
    transport = b"".join((*(header.raw for header in headers), payload, bytes(pad)))
    if pad:
        transport = transport[:1] + bytes((transport[1] | pad << _PAD_SHIFT,)) + transport[2:]
    length = LRH.size + len(transport) + ICRC_BYTES
    lnh, route, grh = LNH.BTH, Route.LOCAL, b""
    if av.gids is not None:
        lnh, route, grh = LNH.GRH, Route.GLOBAL, _route(av, len(transport) + ICRC_BYTES)
        length += GRH.size
    whole = _LRH.pack(0, av.sl << 4 | lnh, av.lid, length // 4, slid) + grh + transport
    whole += icrc_bytes(route, whole)
    return whole + _vcrc_bytes(whole)


def _route(av: AddressVector, length: int) -> bytes:
    """Return the route headers; `length` is from BTH to ICRC."""
    assert av.gids is not None
    return GRH.pack(
        t_class=av.traffic_class,
        flow_label=av.flow_label & 0xF_FFFF,
        pay_len=length,
        nxt_hdr=GRH_NEXT_HEADER,
        hop_lmt=av.hop_limit,
        sgid=av.gids[1],
        dgid=av.gids[0],
    )


def _vcrc_bytes(packet: bytes) -> bytes:
    return vcrc(packet).to_bytes(VCRC_BYTES, "little")


def _arrival(packet: bytes) -> Arrival:
    if (bth := bth_at(packet)) <= 0:
        raise Malformed("it has no BTH")
    _, sl_lnh, _, _, slid = _LRH.unpack_from(packet)
    end = len(packet) - ICRC_BYTES - VCRC_BYTES
    grh, gids, route = bytes(GRH.size), None, Route.LOCAL
    if bth > LRH.size:
        grh, route = packet[LRH.size : bth], Route.GLOBAL
        gids = int.from_bytes(grh[8:24], "big"), int.from_bytes(grh[24:], "big")
    if icrc_bytes(route, packet[:end]) != packet[end : end + ICRC_BYTES]:
        raise Malformed("the ICRC is wrong")
    headers, at = read_transport(packet, bth)
    segment = decode(headers, packet[at : end - BTH.pad_cnt.get(packet, bth)])
    return Arrival(
        segment=segment,
        source=AddressVector(slid, gids),
        grh=grh,
        slid=slid,
        sl=sl_lnh >> 4,
        group=gids[1] if gids is not None else None,
        packet=packet,
    )
