"""The state of a follower in Prometheus text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from weft.monitor.metrics import Family, labels, text
from weft.twin.deviations import KINDS
from weft.twin.follow import Follower
from weft.twin.history import Subject


def render(follower: Follower) -> bytes:
    """Return the metrics of a follower."""
    changes = [(labels(kind=kind), count) for kind, count in sorted(follower.changes.items())]
    families = [
        Family("weft_follow_polls_total", "Polls of the subnet.", "counter", [("", follower.polls)]),
        Family("weft_follow_poll_seconds", "Duration of the last poll.", "gauge", [("", follower.poll_s)]),
        Family("weft_follow_polled_timestamp_seconds", "Time of the last poll.", "gauge", [("", follower.polled_at_s)]),
        Family("weft_follow_changes_total", "Changes since the start, by kind.", "counter", changes),
        *deviation_metrics(follower.deviations),
    ]
    return text(families).encode()


def deviation_metrics(deviations: Mapping[Subject, str]) -> list[Family]:
    """Return the number of deviations from the intent by kind, and one sample for each."""
    counts = Counter(kind for kind, _ in deviations)
    each = [(labels(kind=kind, name=name), 1) for kind, name in sorted(deviations)]
    return [
        Family(
            "weft_deviations",
            "Deviations from the intent, by kind.",
            "gauge",
            [(labels(kind=kind), counts[kind]) for kind in KINDS],
        ),
        Family("weft_deviation", "1 for each deviation from the intent.", "gauge", each),
    ]
