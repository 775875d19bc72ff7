"""An Ethernet port of a lab: RoCE v2, whole frames that the lab carries over its Ethernet cables (weft.mad.ethernet).

An address is an `AddressVector` without a LID: its GIDs are IPv4 addresses. A cable that is pulled or a switch without
a path loses frames, as Ethernet does. There are no partitions but the default one, and no multicast groups.
"""

from __future__ import annotations

from weft.errors import ConfigError, SubnetError
from weft.verbs.carriers.lab.ethernet_facts import EthernetFacts
from weft.verbs.carriers.lab.ethernet_frames import arrival_of, frame_of, is_ipv4
from weft.verbs.carriers.lab.line_carrier import LineCarrier
from weft.verbs.carriers.lab.memory_grants import PathEnd
from weft.verbs.carriers.lab.paths import AddressVector
from weft.verbs.carriers.loopback import grh_of
from weft.verbs.enums import ibv_event_type
from weft.verbs.hca.carrier import Arrival, Sender
from weft.verbs.hca.packets import encode
from weft.verbs.hca.segment import Segment

_LATE_S = 0.5  # for an answer of the lab about an answer that is late


class EthernetCarrier(LineCarrier[EthernetFacts]):
    """A carrier to a lab from an Ethernet port."""

    def send(self, segment: Segment, to: object, mtu_bytes: int) -> None:
        av = AddressVector(0, to) if isinstance(to, tuple) else to
        if not self.facts.is_active or not isinstance(av, AddressVector) or av.gids is None or not is_ipv4(av.gids[0]):
            return
        gids, traffic_class, ttl = av.gids, av.traffic_class, av.hop_limit or 1
        packets = encode(segment, mtu_bytes)
        self.line.put([frame_of(gids, headers, payload, traffic_class, ttl) for headers, payload in packets])

    def join(self, address: int, own_gid: int) -> int | None:
        return None  # as RoCE over UDP sockets: the lab's Ethernet has no groups

    def has_not_taken(self, to: object, dest_qp: int) -> bool:
        """Ask the lab whether the peer has unread packets; its response may arrive meanwhile."""
        if self.line.is_down or not isinstance(to, AddressVector) or to.gids is None:
            return False
        try:
            said = self.line.ask("has_not_taken", _LATE_S, dest_qp=dest_qp, lid=0, sl=0, dgid=to.gids[0])
        except ConfigError:
            return False
        except SubnetError:  # it is the lab that is behind, or gone
            return not self.line.is_down
        return bool(said["has_not_taken"]) or not self.line.is_idle

    def why_lost(self, to: object, p_key: int, mtu_bytes: int) -> str:
        if not self.facts.is_active:
            return "its Ethernet cable is broken (`weft fix`)"
        if isinstance(to, AddressVector) and to.gids is not None and not is_ipv4(to.gids[0]):
            return "the GID is no IPv4 address: the peer's port is InfiniBand, this one is Ethernet"
        return "no Ethernet cables lead there, or the peer has ended"

    # -- of the link layer --------------------------------------------------------------------------------------------

    def unpack_facts(self, raw: bytes) -> EthernetFacts:
        return EthernetFacts.unpack(raw)

    def events_to(self, facts: EthernetFacts) -> list[ibv_event_type]:
        return list(self.facts.events_to(facts))

    def arrival(self, packet: bytes) -> Arrival:
        return arrival_of(packet)

    def sender_to(self, to: AddressVector, end: PathEnd) -> Sender:
        assert to.gids is not None  # the lab grants no other path
        peer, own = to.gids
        return Sender(source=AddressVector(0, (own, peer)), grh=grh_of(own, peer), slid=0, sl=0)
