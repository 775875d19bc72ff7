"""Random faults and changes of a subnet in this process, and its model after each of them.

python -m tests.random_changes [SPEC ...] [--changes 1000] [--seed 1]

A change is a fault (see `random_faults`), a sweep of weft's subnet manager, or a new entry of a forwarding table or a
P_Key table. After each the model, which has small budgets, is refreshed until its facts are those of a fresh reading by
a walk: nodes, links, LIDs, tables, P_Keys and managers. Status 1: they were not after 40 refreshes.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass

from tests.random_faults import RandomFaults

import weft
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.subnet import Subnet
from weft.monitor.impact import read_routed
from weft.sm.run import SubnetManager
from weft.twin.facts import read_facts
from weft.twin.model import Model

_PATIENCE = 40  # refreshes
SPECS = ("fat-tree:hosts=16,radix=8", "torus:3x3,hosts=1", "dragonfly:p=2,a=2,h=1")


@dataclass(slots=True)
class Outcome:
    """The outcome of a run."""

    changes: int = 0
    differences: int = 0  # facts that were not those of a fresh reading
    refreshes: int = 0
    most_refreshes: int = 0  # until the model was settled
    whole_walks: int = 0


def run_changes(spec: str, *, changes: int, seed: int) -> Outcome:
    """Make random changes, and compare the model with a fresh reading after each."""
    clock, rng = ManualClock(), random.Random(seed)
    subnet = Subnet(weft.load(spec), clock=clock)
    devices = subnet.devices
    fabric = devices.fabric
    own, at = (fabric.find_port(f"{host}/1").slot for host in ("h1", "h2"))
    _sweep(subnet, own, clock)
    carrier = LocalCarrier(subnet, at, sleep=clock.sleep)
    model = Model(carrier, quiet_mads=40, busy_mads=120, links_at_once=8, clock=clock)
    model.refresh()
    random_faults, result = RandomFaults(devices, at, seed), Outcome()
    for _ in range(changes):
        draw = rng.random()
        if draw < 0.2:
            _sweep(subnet, own, clock)
        elif draw < 0.3:
            _write_table(subnet, rng)
        else:
            random_faults.apply_one()
        fresh = read_facts(read_routed(carrier))
        held, refreshes = read_facts(model.refresh()), 1
        while held != fresh and refreshes < _PATIENCE:
            held, refreshes = read_facts(model.refresh()), refreshes + 1
        result.differences += len(fresh.items() ^ held.items())
        result.refreshes += refreshes
        result.most_refreshes = max(result.most_refreshes, refreshes)
        result.changes += 1
        clock.sleep(rng.choice((0, 30)))  # the model reads more in the first seconds after a change
    result.whole_walks = model.whole_walks
    return result


def _sweep(subnet: Subnet, slot: int, clock: ManualClock) -> None:
    if subnet.devices.peer(slot) < 0:
        return
    carrier = LocalCarrier(subnet, slot, sleep=clock.sleep)
    SubnetManager(carrier).run(once=True)
    carrier.close()


def _write_table(subnet: Subnet, rng: random.Random) -> None:
    """Change an entry of a forwarding table or of a P_Key table, as another manager would."""
    tables = subnet.devices.fabric.tables
    if rng.random() < 0.5:
        row, lid = rng.randrange(len(tables.lft)), rng.randrange(1, tables.lft.shape[1])
        tables.lft[row, lid] = rng.randrange(1, 5)
    else:
        hosts = [slot for slot, far in enumerate(subnet.devices.cable) if far >= 0]
        tables.pkey[rng.choice(hosts), rng.randrange(1, 4)] = 0x8000 | rng.randrange(1, 0x7FFF)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="*", default=SPECS)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    differences = 0
    for spec in options.specs:
        outcome = run_changes(spec, changes=options.changes, seed=options.seed)
        differences += outcome.differences
        print(
            f"{spec}: {outcome.changes:,} changes, {outcome.differences} facts differ, equal after "
            f"{outcome.refreshes / outcome.changes:.1f} refreshes in the mean and {outcome.most_refreshes} at most, "
            f"{outcome.whole_walks - 1} whole walks after the first",
            flush=True,
        )
    sys.exit(differences > 0)


if __name__ == "__main__":
    main()
