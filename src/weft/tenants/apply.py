"""Apply an intent to a fabric: read the current state, plan the difference, write it, read it back.

    change = plan_change(driver, intent)     # change.plan lists the differences; nothing is written
    apply_change(driver, change)

Applying the same intent twice changes nothing. If the process is killed halfway, applying again completes the change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.errors import SubnetError
from weft.tenants.compile import Compiled, compile_intent
from weft.tenants.drivers.driver import Driver, Observed
from weft.tenants.intent import Intent
from weft.tenants.partitions import Inventory
from weft.tenants.reconcile import Names, Plan, compare, lines
from weft.units import format_items

_MOST_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A planned change: the observed state, the desired state, and the difference."""

    inventory: Inventory
    observed: Observed
    compiled: Compiled
    plan: Plan
    drift: tuple[str, ...] = ()  # ports whose P_Key tables differ from the subnet manager's configuration

    @property
    def is_empty(self) -> bool:
        return self.plan.is_empty and not self.drift

    @property
    def summary(self) -> str:
        """The last line of the printed plan."""
        if not self.drift:
            return self.plan.summary
        repair = (
            f"To repair: the P_Key tables of {format_items(len(self.drift), 'port')}, "
            "which differ from the subnet manager's configuration."
        )
        return repair if self.plan.is_empty else f"{self.plan.summary} {repair}"


def plan_change(driver: Driver, intent: Intent, *, open_default: bool = False) -> Change:
    """Compare an intent with the fabric and return the difference without writing anything.

    open_default: restore full membership in the default partition if no other partition remains.
    """
    inventory, observed = driver.inventory(), driver.read()
    compiled = compile_intent(intent, inventory, observed.foreign_p_keys, observed.allocation)
    if open_default and not compiled.allocation.partitions:
        compiled = replace(compiled, allocation=replace(compiled.allocation, default_is_full=True))
    plan = compare(observed.allocation, compiled.allocation)
    drift = driver.check(repair=False).differences
    return Change(inventory=inventory, observed=observed, compiled=compiled, plan=plan, drift=drift)


def remove_all(intent: Intent) -> Intent:
    """Return an intent that keeps the P_Key range and has no partitions (for `destroy`)."""
    return Intent(p_keys=intent.p_keys)


def apply_change(driver: Driver, change: Change) -> None:
    """Write a planned change and verify it. Raise SubnetError if the fabric differs afterwards."""
    if change.is_empty:
        return
    if not change.plan.is_empty:
        driver.write(change.compiled.allocation, over=change.observed)
    if change.drift and driver.check(repair=True).differences and (wrong := driver.check(repair=False).differences):
        raise SubnetError(f"{driver.title} still differs after the repair: {'; '.join(wrong[:_MOST_NAMED])}")
    left = compare(driver.read().allocation, change.compiled.allocation)
    if not left.is_empty:
        missing = "\n  ".join(lines(left, Names(change.inventory)))
        raise SubnetError(
            f"{driver.title} accepted the change but now reports a different state; another client may have "
            f"changed it. Plan again. Still missing:\n  {missing}"
        )


def apply(driver: Driver, intent: Intent) -> Change:
    """Apply an intent and return the change, which is empty if the fabric had it already."""
    change = plan_change(driver, intent)
    apply_change(driver, change)
    return change
