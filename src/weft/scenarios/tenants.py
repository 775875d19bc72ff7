"""Attacks between tenants: does any packet cross, whatever its key, in a healthy or a just broken fabric?

    storage     h15 h16                        a service: tenants reach it, and not each other through it
    red, blue, green      5, 5 and 3 hosts     each on the lanes of its class; h1 has the subnet manager

    1  no fault                          3  it is routed around         5  it is configured again
    2  a cable was pulled just now       4  a leaf has restarted, and has no tables yet

weft's subnet manager has assigned the keys, by MADs, and an M_Key. Before each situation a foreign subnet manager at a
tenant's host tries to write all P_Key tables, and to disable all checks. All of it runs twice: with switches that check
keys at host ports, the default of the subnet manager, and with switches that do not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from weft.draw.chart import titled_chart
from weft.errors import ConfigError
from weft.fabric.forwarding import Reason
from weft.fabric.kinds import NodeKind
from weft.fabric.spec import load
from weft.mad import faults
from weft.mad.local import LocalCarrier
from weft.mad.walk import DATA
from weft.scenarios.attack import CONTROL, CROSSING, FORGED, GUESSED, OWN, RAW, Attack
from weft.scenarios.finding import COLOURS, Cell, Finding
from weft.scenarios.managed import ManagedSubnet
from weft.sm.conf.options import Options
from weft.tenants.compile import compile_intent
from weft.tenants.drivers.partition_files import write_partitions
from weft.tenants.intent import parse_intent
from weft.tenants.isolation import Proof, prove_isolation
from weft.tenants.partitions import Allocation
from weft.tenants.simulate import planned_inventory
from weft.wire.bulk import fill, pack_rows
from weft.wire.mad import Method
from weft.wire.smp import Smp, SmpAttribute

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
