"""From what is wanted to a fabric that has it: read, plan, write, read back.

    step = prepare(driver, intent)      step.plan is what would change
    carry_out(driver, step)

Doing it again does nothing. Whoever is killed in between leaves what `driver` promises, and doing it again ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.errors import SubnetError
from weft.tenants.compile import Compiled, compile_intent
from weft.tenants.drivers.driver import Driver, Observed
from weft.tenants.intent import Intent
from weft.tenants.partitions import Inventory
from weft.tenants.reconcile import Names, Plan, compare, lines

_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a fabric has, what it shall have, and what that changes."""

    inventory: Inventory
    observed: Observed
    compiled: Compiled
    plan: Plan
    drift: tuple[str, ...] = ()  # ports that differ from what their subnet manager was told

    @property
    def is_empty(self) -> bool:
        return self.plan.is_empty and not self.drift

    @property
    def summary(self) -> str:
        """The last line."""
        if not self.drift:
            return self.plan.summary
        repair = f"{len(self.drift):,} differences between the ports and what their subnet manager was told, to repair."
        return repair if self.plan.is_empty else f"{self.plan.summary} {repair}"


def prepare(driver: Driver, intent: Intent, *, open_default: bool = False) -> Step:
    """Nothing is written. `open_default`: ports are full members of Default again, if there is no slice any more."""
    inventory, observed = driver.inventory(), driver.read()
    compiled = compile_intent(intent, inventory, observed.taken, observed.allocation)
    if open_default and not compiled.allocation.partitions:
        compiled = replace(compiled, allocation=replace(compiled.allocation, default_is_full=True))
    plan = compare(observed.allocation, compiled.allocation)
    drift = driver.check(repair=False).differences
    return Step(inventory=inventory, observed=observed, compiled=compiled, plan=plan, drift=drift)


def nothing_of(intent: Intent) -> Intent:
    """What is wanted where all of it shall go: its P_Keys, and nobody who has one."""
    return Intent(p_keys=intent.p_keys)


def carry_out(driver: Driver, step: Step) -> None:
    """SubnetError if the fabric has something else in the end."""
    if step.is_empty:
        return
    if not step.plan.is_empty:
        driver.write(step.compiled.allocation, over=step.observed)
    if step.drift and driver.check(repair=True).differences and (wrong := driver.check(repair=False).differences):
        raise SubnetError(f"{driver.title} is not repaired: {'; '.join(wrong[:_NAMED])}")
    left = compare(driver.read().allocation, step.compiled.allocation)
    if not left.is_empty:
        missing = "\n  ".join(lines(left, Names(step.inventory)))
        raise SubnetError(
            f"{driver.title} took it, and has something else now: somebody may have changed it meanwhile. Plan again; "
            f"this is missing:\n  {missing}"
        )


def apply(driver: Driver, intent: Intent) -> Step:
    """What was done; an empty plan if there was nothing to do."""
    step = prepare(driver, intent)
    carry_out(driver, step)
    return step
