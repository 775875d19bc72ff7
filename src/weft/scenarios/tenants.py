"""Attacks between tenants: does any packet cross, whatever its key, in a healthy or a just broken fabric?

    storage     h15 h16                        a service: tenants reach it, and not each other through it
    red, blue, green      5, 5 and 3 hosts     each on the lanes of its class; h1 has the subnet manager

    1  no fault                          3  it is routed around         5  it is configured again
    2  a cable was pulled just now       4  a leaf has restarted, and has no tables yet

weft's subnet manager has assigned the keys, by MADs, and an M_Key. Before each situation a foreign subnet manager at a
tenant's host tries to write all P_Key tables, and to disable all checks. All of it runs twice: with switches that check
keys at host ports, the default of the subnet manager, and with switches that do not.

    own        with a P_Key that the sender holds: all that correct firmware allows its programs
    forged     with a key that the receiver holds, as an attacker in control of the sender's adapter could send
    guessed    with a random key
    control    within a tenant, with its own key: these must arrive, or the absence of others proves nothing

Datagrams with a Q_Key and messages of connections, on all service levels; complete packets with their checksums. A
packet that a port accepts counts as delivered, before any queue pair checks it: a queue pair gets only what its port
accepts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from weft.draw.chart import titled_chart
from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.fabric.forwarding import Reason
from weft.fabric.kinds import NodeKind
from weft.fabric.spec import load
from weft.fabric.tables import SERVICE_LEVELS
from weft.ids import PKey
from weft.mad import faults
from weft.mad.devices import Devices
from weft.mad.local import LocalCarrier
from weft.mad.many_packets import carry_many
from weft.mad.walk import DATA
from weft.scenarios.finding import COLOURS, Cell, Finding
from weft.scenarios.managed import ManagedSubnet
from weft.sm.conf.options import Options
from weft.tenants.compile import compile_intent
from weft.tenants.drivers.partition_files import write_partitions
from weft.tenants.intent import parse_intent
from weft.tenants.isolation import Proof, prove_isolation
from weft.tenants.partitions import Allocation
from weft.tenants.simulate import planned_inventory
from weft.wire.bulk import Rows, fill, icrc, pack_rows, vcrc
from weft.wire.crc import ICRC_BYTES, VCRC_BYTES, Route
from weft.wire.headers import BTH, DETH, LNH, LRH, RWH, Opcode
from weft.wire.mad import Method
from weft.wire.smp import Smp, SmpAttribute

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
        """Send attempts, raw packets between all pairs that may not communicate, and a tenth as many within tenants."""
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


CLAIM = "A tenant reaches its own ports and the services that it shares, and no others, whatever it sends."
SOURCE = "the guarantee of `weft tenants`"
SPEC = "fat-tree:hosts=16,radix=8"
INTENT = {
    "class": {"mpi": {"share": 50, "priority": "high"}, "bulk": {"share": 30}},
    "tenant": {
        "red": {"hosts": ["h[2-6]"], "class": "mpi"},
        "blue": {"hosts": ["h[7-11]"], "class": "bulk"},
        "green": {"hosts": ["h[12-14]"]},
    },
    "service": {"storage": {"hosts": ["h[15-16]"], "tenants": "all", "class": "bulk"}},
}
CABLE, LEAF = "leaf1/5", "leaf2"
ROGUE = "h6/1"  # a host of red
CHECK, TRUST = "both", "off"  # part_enforce
_SWITCHES = {CHECK: "check keys", TRUST: "let all pass"}
_KEY_NAMES = {
    OWN: "one that the sender holds",
    FORGED: "the receiver's, forged",
    GUESSED: "guessed",
    RAW: "none: raw packets",
    CONTROL: "its tenant's, to its own",
}
_STOPPED = {  # place -> reason
    "sender's switch": Reason.INBOUND,
    "receiver's switch": Reason.OUTBOUND,
    "receiver's port": Reason.P_KEY,
}
Progress = Callable[[int, int, str], None]


def run(
    *,
    attempts: Annotated[int, "Packets across tenants, with and without key checks in switches."] = 1_000_000,
    seed: Annotated[int, "Random seed for pairs, keys and service levels."] = 1,
    progress: Progress = lambda done, total, name: None,
) -> Finding:
    """Run the attempts, a fifth of them in each of the five situations."""
    if attempts < 1_000:
        raise ConfigError(f"--attempts must be 1,000 or more, got {attempts}")
    allocation = compile_intent(parse_intent(INTENT), planned_inventory(load(SPEC))).allocation
    results = {}
    for number, part_enforce in enumerate((CHECK, TRUST)):
        progress(number, 2, f"switches {_SWITCHES[part_enforce]}")
        results[part_enforce] = _attack(part_enforce, allocation, attempts, seed)
    return _finding(results, {"attempts": attempts, "seed": seed})


def _attack(part_enforce: str, allocation: Allocation, attempts: int, seed: int) -> tuple[Attack, list[Proof]]:
    """Run all five situations; the proofs are of the three in which the subnet manager has finished."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "partitions.conf"
        path.write_text(write_partitions(allocation))
        assert allocation.lanes is not None
        options = Options(
            partition_config_file=path,
            part_enforce=part_enforce,
            qos=True,
            qos_general=allocation.lanes,
            m_key_file=Path(folder) / "m_key",
        )
        return _attack_all(ManagedSubnet(load(SPEC), options), allocation, attempts, seed)


def _attack_all(net: ManagedSubnet, allocation: Allocation, attempts: int, seed: int) -> tuple[Attack, list[Proof]]:
    attack = Attack(net.devices, net.hosts.astype("int64"), net.carrier.slot, allocation, seed)
    devices, proofs = net.devices, []
    cable, leaf = net.fabric.find_port(CABLE).slot, net.fabric.nodes.name.index(LEAF)
    for fault in (None, lambda: faults.pull_cable(devices, cable), lambda: _restart(net, leaf)):
        _invade(net, attack)
        if fault is not None:
            fault()
            attack.send(attempts // 5, is_calm=False)
            net.settle()
        attack.send(attempts - 4 * (attempts // 5) if fault is None else attempts // 5, is_calm=True)
        proofs.append(prove_isolation(faults.fabric_now(devices), allocation))
    return attack, proofs


def _invade(net: ManagedSubnet, attack: Attack) -> None:
    """Send the SMPs of a foreign subnet manager: all ports get the default partition, and switches check nothing."""
    fabric, tables = net.fabric, net.fabric.tables
    switches = np.flatnonzero(fabric.nodes.kind == NodeKind.SWITCH)
    ports = fabric.nodes.n_ports[switches].astype(np.int64)
    lids = np.concatenate((tables.lid[net.hosts], np.repeat(tables.lid[fabric.first_port[switches]], ports)))
    mads = pack_rows(Smp, len(lids), method=int(Method.SET), attribute_id=int(SmpAttribute.P_KEY_TABLE))
    mads[:, DATA : DATA + 2] = 0xFF
    of_ports = mads[len(net.hosts) :]
    fill(of_ports, Smp.attribute_id, int(SmpAttribute.PORT_INFO))
    fill(of_ports, Smp.attribute_modifier, np.concatenate([np.arange(1, n + 1) for n in ports.tolist()]))
    of_ports[:, DATA:] = 0
    rogue = LocalCarrier(net.subnet, net.fabric.find_port(ROGUE).slot, sleep=net.clock.sleep)
    _, accepted = rogue.exchange(mads, lids.astype(np.int64), timeout_ms=1, retries=0)
    rogue.close()
    attack.foreign_sets += len(mads)
    attack.foreign_sets_taken += int(accepted.sum())


def _restart(net: ManagedSubnet, node: int) -> None:
    faults.kill(net.devices, node)
    faults.revive(net.devices, node)


# -- results ----------------------------------------------------------------------------------------------------------


def _finding(results: dict[str, tuple[Attack, list[Proof]]], arguments: dict[str, Any]) -> Finding:
    figures = _figures(results)
    return Finding(
        scenario="tenants",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{SPEC}, three tenants and a service on three lanes: {arguments['attempts']:,} packets across tenants "
        f"with switches that check keys, as many with switches that do not; {CABLE} is pulled, {LEAF} restarts, "
        f"and a foreign subnet manager at {ROGUE} tries to open all ports",
        columns=("switches", "key in the packet", "sent", "delivered", *_STOPPED, "lost"),
        rows=tuple(_row(way, kind, attack) for way, (attack, _) in results.items() for kind in _KEY_NAMES),
        finding=_sentence(figures),
        trust="Packets, tables, agents and the subnet manager are the real ones; a packet that a port accepts "
        "counts as delivered, though a queue pair would check it again. Switches check keys as the standard requires; "
        "keys do not stop a switch whose firmware does not, or an attacker who knows the M_Key. The pairs are a random "
        "sample; for all pairs the tables are proved.",
        options=arguments,
        figures=figures,
    )


def _row(way: str, kind: str, attack: Attack) -> tuple[Cell, ...]:
    tally = attack.tallies[kind]
    stopped = [tally.ends.get(reason, 0) for reason in _STOPPED.values()]
    lost = tally.sent - tally.delivered - sum(stopped)
    return (_SWITCHES[way], _KEY_NAMES[kind], tally.sent, tally.delivered, *stopped, lost)


def _figures(results: dict[str, tuple[Attack, list[Proof]]]) -> dict[str, Any]:
    (attack, proofs), (trusting, trusted) = results[CHECK], results[TRUST]
    crossing = [attack.tallies[kind] for kind in (*CROSSING, RAW)]
    by_switches = sum(
        counts.ends.get(why, 0) for counts in attack.tallies.values() for why in (Reason.INBOUND, Reason.OUTBOUND)
    )
    return {
        "cross_tenant_attempts": sum(counts.sent for counts in crossing),
        "cross_tenant_deliveries": sum(counts.delivered for counts in crossing),
        "control_attempts": attack.tallies[CONTROL].sent,
        "control_deliveries": attack.tallies[CONTROL].delivered,
        "controls_lost_in_calm": attack.controls_lost + trusting.controls_lost,
        "violations": by_switches,
        "violations_counted": attack.counted,
        "proved": [proof.ok for proof in (*proofs, *trusted)],
        "foreign_sets": attack.foreign_sets + trusting.foreign_sets,
        "foreign_sets_taken": attack.foreign_sets_taken + trusting.foreign_sets_taken,
        "unguarded_ports": len(trusted[0].unguarded),
        "without_checks": {
            kind: {"sent": counts.sent, "delivered": counts.delivered} for kind, counts in trusting.tallies.items()
        },
    }


def _sentence(figures: dict[str, Any]) -> str:
    without = figures["without_checks"]
    own, forged = without[OWN], without[FORGED]
    proved = "the tables prove the same each time" if all(figures["proved"]) else "THE TABLES DO NOT PROVE IT"
    return (
        f"With switches that check keys, {figures['cross_tenant_deliveries']:,} of "
        f"{figures['cross_tenant_attempts']:,} packets across tenants were delivered, forged keys and raw packets "
        f"among them, and {figures['controls_lost_in_calm']:,} of {figures['control_attempts']:,} within tenants were "
        f"lost while nothing was broken; {proved}. Switches counted {figures['violations_counted']:,} of the "
        f"{figures['violations']:,} that they stopped. Of {figures['foreign_sets']:,} Sets of a foreign subnet manager "
        f"{figures['foreign_sets_taken']:,} were obeyed. Without their checks it depends on the sender: "
        f"{own['delivered']:,} of {own['sent']:,} with keys that it holds got across, and {forged['delivered']:,} of "
        f"{forged['sent']:,} with forged ones."
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw the ends of packets, by their key."""
    rows = finding.rows
    parts = ("delivered to another tenant", *_STOPPED, "lost: a cable or a switch was down")
    colours = (COLOURS[1], COLOURS[2], "#56b4e9", COLOURS[3], COLOURS[0])
    with titled_chart(path, "Packets across tenants, and where they ended", finding.ran) as (axes,):
        places = [-number - (number >= len(_KEY_NAMES)) * 0.6 for number in range(len(rows))]
        left = [0.0] * len(rows)
        for column, (name, colour) in enumerate(zip(parts, colours, strict=True), 3):
            share = [100 * float(row[column] or 0) / float(row[2] or 1) for row in rows]
            label = f"stopped by the {name}" if name in _STOPPED else name
            bars = axes.barh(places, share, left=left, color=colour, height=0.7, label=label)
            if column == 3:  # delivery within the tenant is no breach
                for bar in bars[len(_KEY_NAMES) - 1 :: len(_KEY_NAMES)]:
                    bar.set_facecolor(COLOURS[4])
            left = [a + b for a, b in zip(left, share, strict=True)]
        for place, row in zip(places, rows, strict=True):
            axes.text(101, place, f"{row[3]:,} delivered", va="center")
        axes.barh([0], [0], color=COLOURS[4], label="delivered to its own tenant")
        axes.set_yticks(places, [f"switches {row[0]} | {row[1]}" for row in rows])
        axes.set_xlabel("percent of the packets")
        axes.set_xlim(0, 100)
        axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.14), ncols=3)
