"""Answer what a round of firmware does: switches or servers reboot, some at a time.

    for turn in ask_rounds(fabric, split_rounds(["leaf1", "leaf2", "leaf3"], 2), jobs):
        turn.reboots, turn.cut_off, turn.answer.jobs

Rounds follow each other: in each, only its own switches and servers are away. `weft maintain` finds an order by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.lab.load import JobSpec
from weft.sim.steady import LoadJob
from weft.twin.what_if import Answer, Change, ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A set of reboots at one time, and their effects."""

    reboots: tuple[str, ...]
    answer: Answer
    cut_off: tuple[str, ...]  # host ports that lose their connection and do not reboot themselves

    @property
    def is_safe(self) -> bool:
        proof = self.answer.proof
        return not self.cut_off and not self.answer.refusal and proof is not None and proof.ok


def split_rounds(names: Sequence[str], rounds: int) -> list[tuple[str, ...]]:
    """Split names into rounds of nearly equal size, taking every so many-th, so that neighbours are apart."""
    if not 1 <= rounds <= len(names):
        raise ConfigError(f"--rounds must be 1 to {len(names)}, the number of reboots, got {rounds}")
    return [tuple(names[begin::rounds]) for begin in range(rounds)]


def ask_rounds(
    present: Fabric, rounds: Sequence[Sequence[str]], jobs: Sequence[JobSpec | LoadJob] = (), *, seed: int = 1
) -> Iterator[Round]:
    """Yield the effects of each round on a fabric with forwarding tables."""
    for names in rounds:
        answer = ask(present, Change(faults=tuple(f"dead:{name}" for name in names)), jobs, seed=seed)
        own = tuple(
            port for port in answer.cut_off if any(port == name or port.startswith(f"{name}/") for name in names)
        )
        others = tuple(port for port in answer.cut_off if port not in own)
        yield Round(reboots=tuple(names), answer=answer, cut_off=others)
