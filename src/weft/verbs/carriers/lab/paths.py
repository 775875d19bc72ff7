"""Query the subnet administrator of a lab for paths to GIDs, and join multicast groups.

The connection manager, and programs for RoCE, name a peer by its GID only. As the kernel does on InfiniBand, the
adapter queries the administrator with a MAD from its own port, and caches the answer until the port changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.errors import ConfigError, SubnetError
from weft.ids import Gid
from weft.verbs.carriers.lab.connection import Line
from weft.verbs.carriers.lab.port_facts import Facts
from weft.wire.format import Format, Malformed

if TYPE_CHECKING:
    from weft.wire.mad import Method
    from weft.wire.sa import SaAttribute

_TIMEOUT_S = 2.0
_BUSY_S = 0.05  # wait after a busy response
_ASK_AGAIN_S = 1.0  # after an unknown GID or no response
_MULTICAST = 0xFF  # the first byte of a GID
_IPV4 = 0xFFFF  # prefix of a GID that is an IPv4 address
_IPV4_BROADCAST = 0xFF12_401B_0000 << 80 | 0xFFFF_FFFF  # group of a partition, without its P_Key
_IPV4_GROUP = 0xFF12_4001_0000 << 80  # multicast prefix of the connection manager (Linux drivers/infiniband/core/cma.c)
_FULL_MEMBER, _SEND_ONLY = 1, 4
_Q_KEY = 0x0123_4567  # for all groups of the connection manager
_HOP_LIMIT = 64  # within the subnet, where it means nothing


def group_of(gid: int, p_key: int) -> int:
    """Return the multicast GID of an address: a multicast GID itself, or an IPv4 address."""
    if gid >> 32 == _IPV4:
        return _IPV4_GROUP | (p_key | 0x8000) << 80 | gid & 0x0FFF_FFFF
    return gid


class Paths:
    """The paths and groups of one port, whose `facts` change."""

    def __init__(self, line: Line, facts: Callable[[], Facts]) -> None:
        self._line, self._facts = line, facts
        self._known: dict[tuple[int, int], tuple[AddressVector | None, float]] = {}  # by GIDs, with the end of validity

    def forget(self) -> None:
        self._known.clear()

    def to(self, gids: tuple[int, int]) -> AddressVector | None:
        """Return the address of a peer or group; None if the administrator knows none."""
        now_s = time.monotonic()
        if gids not in self._known or self._known[gids][1] < now_s:
            to_group = gids[0] >> 120 == _MULTICAST  # a sender need not be a member
            address = self._join(gids, _SEND_ONLY) if to_group else self._path(gids)
            self._known[gids] = address, float("inf") if address else now_s + _ASK_AGAIN_S
        return self._known[gids][0]

    def _path(self, gids: tuple[int, int]) -> AddressVector | None:
        from weft.wire.mad import Method  # importing the administrator's records takes long, and LIDs need none
        from weft.wire.sa import PathRecord, SaAttribute
        from weft.wire.sa_query import component_mask

        query = PathRecord(dgid=gids[0], sgid=gids[1], numb_path=1, reversible=1)
        mask = component_mask(PathRecord, "dgid", "sgid", "numb_path", "reversible")
        raw = self._ask(Method.GET, SaAttribute.PATH_RECORD, query, mask)
        if raw is None:
            return None
        path = PathRecord.unpack(raw)
        lid = self._facts().info.lid
        bits = path.slid - lid if path.slid >= lid else 0
        return AddressVector(path.dlid, gids, sl=path.sl, path_bits=bits, hop_limit=path.hop_limit or _HOP_LIMIT)

    def join(self, gids: tuple[int, int]) -> AddressVector | None:
        """Join a group, and create it if it does not exist."""
        address = self._join(gids, _FULL_MEMBER)
        if address is not None:
            self._known[gids] = address, float("inf")
        return address

    def join_existing(self, gids: tuple[int, int]) -> AddressVector | None:
        """Join a group that exists, as IPoIB joins a partition's broadcast group; return None if it does not exist."""
        return self._join(gids, _FULL_MEMBER, creates=False)

    def leave(self, gids: tuple[int, int]) -> None:
        from weft.wire.mad import Method
        from weft.wire.sa import MCMemberRecord, SaAttribute
        from weft.wire.sa_query import component_mask

        query = MCMemberRecord(mgid=gids[0], port_gid=gids[1], join_state=_FULL_MEMBER)
        mask = component_mask(MCMemberRecord, "mgid", "port_gid", "join_state")
        self._known.pop(gids, None)
        self._ask(Method.DELETE, SaAttribute.MC_MEMBER_RECORD, query, mask)

    def _join(self, gids: tuple[int, int], state: int, *, creates: bool = True) -> AddressVector | None:
        from weft.wire.mad import Method
        from weft.wire.sa import MCMemberRecord, SaAttribute
        from weft.wire.sa_query import component_mask

        names = ["mgid", "port_gid", "join_state"]
        query = MCMemberRecord(mgid=gids[0], port_gid=gids[1], join_state=state)
        if state == _FULL_MEMBER and creates:
            # One request that joins or creates, as cma_join_ib_multicast in Linux: SL, FlowLabel and TClass are those
            # of the partition's IPv4 broadcast group, the MTU is the administrator's choice.
            p_key = self._facts().p_keys[0] | 0x8000
            raw = self._ask(
                Method.GET,
                SaAttribute.MC_MEMBER_RECORD,
                MCMemberRecord(mgid=_IPV4_BROADCAST | p_key << 80),
                component_mask(MCMemberRecord, "mgid"),
            )
            like = MCMemberRecord() if raw is None else MCMemberRecord.unpack(raw)
            query = query.replace(
                q_key=_Q_KEY, p_key=p_key, t_class=like.t_class, sl=like.sl, flow_label=like.flow_label
            )
            names += ["q_key", "p_key", "t_class", "sl", "flow_label"]
        raw = self._ask(Method.SET, SaAttribute.MC_MEMBER_RECORD, query, component_mask(MCMemberRecord, *names))
        if raw is None:
            return None
        member = MCMemberRecord.unpack(raw)
        return AddressVector(member.mlid, gids, sl=member.sl, flow_label=member.flow_label, hop_limit=member.hop_limit)

    def _ask(self, method: Method, attribute: SaAttribute, query: Format, mask: int) -> bytes | None:
        """Return the first record of the response; None if there is none."""
        from weft.wire.mad import Status
        from weft.wire.sa import SaMad

        mad = SaMad(method=method, attribute_id=attribute, component_mask=mask, data=query.raw)
        until_s = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                answer = self._line.ask("sa", _TIMEOUT_S, mad=mad.raw.hex())
                response = SaMad.unpack(bytes.fromhex(answer["mad"]))
            except (ConfigError, SubnetError, Malformed):
                return None
            if response.status != Status.BUSY or time.monotonic() > until_s:
                return None if response.status else response.data
            time.sleep(_BUSY_S)


@dataclass(frozen=True, slots=True)
class AddressVector:
    """An address vector. Two are equal if they have the same peer: by LID, and by GIDs if they have any.

    GIDs in different subnets are compared alone: the LID is that of one of the routers. The text of an address vector
    has the compared fields: processes compare it.
    """

    lid: int = field(compare=False, repr=False)
    gids: tuple[int, int] | None = None  # destination, source
    sl: int = field(default=0, compare=False, repr=False)
    path_bits: int = field(default=0, compare=False, repr=False)
    flow_label: int = field(default=0, compare=False, repr=False)
    hop_limit: int = field(default=_HOP_LIMIT, compare=False, repr=False)
    traffic_class: int = field(default=0, compare=False, repr=False)
    peer_lid: int = field(init=False)  # 0 in another subnet

    def __post_init__(self) -> None:
        subnets = {Gid(gid).subnet_prefix for gid in self.gids or ()}
        is_local = len(subnets) < 2 or (self.gids is not None and self.gids[0] >> 120 == _MULTICAST)
        object.__setattr__(self, "peer_lid", self.lid if is_local else 0)
