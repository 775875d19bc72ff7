"""Questions by MAD, one after the other from several ports, without waiting for answers; and what became of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weft.mad.carrier import Address, Carrier

TICK_S = 0.005
TIMEOUT_MS = 500


@dataclass(slots=True, eq=False)
class Probe:
    """Sends one question after the other, waits for none, and notes what became of each."""

    carrier: Carrier
    question: Callable[[], tuple[bytes, Address]]
    is_good: Callable[[bytes], bool]
    every: int = 1  # ticks
    under_way: dict[int, float] = field(default_factory=dict)  # token -> when it was sent
    done: list[tuple[float, float, bool]] = field(default_factory=list)  # sent, over, and was the answer good

    def ask(self) -> None:
        mad, to = self.question()
        sent_s = time.monotonic()
        self.under_way[self.carrier.send(mad, to, timeout_ms=TIMEOUT_MS, retries=0)] = sent_s

    def collect(self) -> None:
        for token, answer in self.carrier.poll():
            if token in self.under_way:
                good = answer is not None and self.is_good(answer)
                self.done.append((self.under_way.pop(token), time.monotonic(), good))

    def first_good(self, since_s: float) -> tuple[float, float] | None:
        """The first question since then that was answered well: when it was sent, and when the answer came."""
        return next(((sent_s, over_s) for sent_s, over_s, good in self.done if good and sent_s >= since_s), None)

    def count(self, begin_s: float, end_s: float) -> tuple[int, int]:
        """Asked within that time, and answered well."""
        good = [good for sent_s, _, good in self.done if begin_s <= sent_s < end_s]
        return len(good), sum(good)


def go_on(asked: Sequence[Probe], *, until: Callable[[float, float], bool], asks: bool = True) -> None:
    """Tick after tick; `until` is given the time, and when it began."""
    began_s = now_s = time.monotonic()
    tick = 0
    while not until(now_s, began_s):
        for one in asked:
            one.collect()
            if asks and tick % one.every == 0:
                one.ask()
        tick += 1
        now_s = time.monotonic()
        time.sleep(max(0.0, TICK_S - (now_s - began_s) % TICK_S))
