"""Send MAD requests from several ports at regular intervals, without waiting for responses, and record the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from weft.mad.carrier import Address, Carrier

TICK_S = 0.005
TIMEOUT_MS = 500


@dataclass(slots=True, eq=False)
class Probe:
    """A sender of requests at regular intervals that records the result of each."""

    carrier: Carrier
    request: Callable[[], tuple[bytes, Address]]
    is_good: Callable[[bytes], bool]
    every: int = 1  # ticks
    under_way: dict[int, float] = field(default_factory=dict)  # token -> time sent
    # time sent, time completed, and whether the response was good
    done: list[tuple[float, float, bool]] = field(default_factory=list)

    def send(self) -> None:
        mad, to = self.request()
        sent_s = time.monotonic()
        self.under_way[self.carrier.send(mad, to, timeout_ms=TIMEOUT_MS, retries=0)] = sent_s

    def collect(self) -> None:
        for token, answer in self.carrier.poll():
            if token in self.under_way:
                good = answer is not None and self.is_good(answer)
                self.done.append((self.under_way.pop(token), time.monotonic(), good))

    def first_good(self, since_s: float) -> tuple[float, float] | None:
        """Return when the first request since a time with a good response was sent, and when the response came."""
        return next(((sent_s, over_s) for sent_s, over_s, good in self.done if good and sent_s >= since_s), None)

    def count(self, begin_s: float, end_s: float) -> tuple[int, int]:
        """Return the number of requests in an interval, and of those with a good response."""
        good = [good for sent_s, _, good in self.done if begin_s <= sent_s < end_s]
        return len(good), sum(good)


def run_probes(probes: Sequence[Probe], *, until: Callable[[float, float], bool], sends: bool = True) -> None:
    """Run the probes tick by tick; `until` is called with the current time and the start time."""
    began_s = now_s = time.monotonic()
    tick = 0
    while not until(now_s, began_s):
        for probe in probes:
            probe.collect()
            if sends and tick % probe.every == 0:
                probe.send()
        tick += 1
        now_s = time.monotonic()
        time.sleep(max(0.0, TICK_S - (now_s - began_s) % TICK_S))
