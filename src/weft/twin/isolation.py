"""Compare the isolation of a running subnet with an intent, from the tables of its devices alone.

P_Keys that the intent leaves open are those that most ports of the tenant have. Hosts that are down keep their names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from weft.fabric.model import Fabric
from weft.routing.patterns import host_ports
from weft.sm.pkey.partitions import DEFAULT_P_KEY
from weft.tenants.compile import compile_intent
from weft.tenants.intent import Intent
from weft.tenants.isolation import Pair, prove_isolation
from weft.tenants.members import PortResolver
from weft.tenants.partitions import Allocation, EndPort, Inventory, Partition
from weft.tenants.recall import KnownPorts, recall, remember
from weft.twin.history import Subject
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo

_NAMED = 3
_PARTITION = 0x7FFF  # a P_Key without the membership bit


class IsolationCheck:
    """A comparison of successive polls with an intent."""

    def __init__(self, intent: Intent) -> None:
        self._intent = intent
        self._ports: KnownPorts = {}
        self._allocation = Allocation()

    def compare(self, fabric: Fabric) -> dict[Subject, str]:
        """Return the pairs that can communicate and should not, or the reverse, by sender."""
        inventory = recall(read_inventory(fabric), self._ports)
        self._ports = remember(inventory)
        held = held_keys(fabric)
        foreign = frozenset(key for keys in held.values() for key in keys) - {*self._intent.pool, DEFAULT_P_KEY}
        if not self._allocation.partitions:
            self._allocation = Allocation(partitions=guess_p_keys(self._intent, inventory, held))
        self._allocation = compile_intent(self._intent, inventory, foreign, self._allocation).allocation
        proof = prove_isolation(fabric, self._allocation, foreign)
        texts: dict[Subject, list[str]] = defaultdict(list)
        for pairs, verb in ((proof.leaks, "reaches"), (proof.cuts, "does not reach")):
            for sender, text in _by_sender(pairs, verb):
                texts["isolation", sender].append(text)
        return {subject: "; ".join(lines) for subject, lines in texts.items()}


def read_inventory(fabric: Fabric) -> Inventory:
    """Return the host ports of a subnet that was read with its tables."""
    ports, nodes = fabric.ports, fabric.nodes
    managers = column(fabric.tables.port_info, PortInfo.master_sm_lid)
    end_ports, manager = [], 0
    for slot in host_ports(fabric).tolist():
        node, lid = ports.node[slot], int(fabric.tables.lid[slot])
        guid = int(ports.guid[slot])
        manager = guid if lid and lid == managers[slot] else manager
        end_ports.append(
            EndPort(
                guid=guid,
                name=fabric.port(slot).name,
                host=nodes.name[node].partition("/")[0],
                node_guid=int(nodes.guid[node]),
                number=int(ports.number[slot]),
                lid=lid,
            )
        )
    return Inventory(tuple(end_ports), manager_guid=manager)


def held_keys(fabric: Fabric) -> dict[int, set[int]]:
    """Return the partitions of each host port, by GUID."""
    slots = host_ports(fabric)
    keys = (fabric.tables.pkey[slots] & _PARTITION).tolist()
    return {
        guid: {key for key in row if key} for guid, row in zip(fabric.ports.guid[slots].tolist(), keys, strict=True)
    }


def guess_p_keys(intent: Intent, inventory: Inventory, held: Mapping[int, set[int]]) -> dict[int, Partition]:
    """Return partitions with the P_Key of the pool that most of their ports have."""
    resolver, partitions = PortResolver(inventory, Allocation()), dict[int, Partition]()
    for key, members in intent.partitions.items():
        counts = Counter(p_key for guid in resolver.resolve(key, members) for p_key in held.get(guid, ()))
        free = sorted(
            (-count, p_key) for p_key, count in counts.items() if p_key in intent.pool and p_key not in partitions
        )
        if free:
            partitions[free[0][1]] = Partition(name=key[1], p_key=free[0][1])
    return partitions


def _by_sender(pairs: Iterable[Pair], verb: str) -> Iterator[tuple[str, str]]:
    """Yield senders and their receivers as text."""
    by_sender: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_sender[pair.sender].append(pair)
    for sender, some in by_sender.items():
        names = list(dict.fromkeys(pair.receiver for pair in some))
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        first = some[0]
        yield sender, f"{verb} {', '.join(names[:_NAMED])}{more} on {first.p_key & _PARTITION:#06x} ({first.partition})"
