"""How an adapter on InfiniBand calls the other end."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AddressVector:
    """To the other end. Two are the same if packets come from the same end: by LID, and by GIDs if there are any.

    The text of one says no more than that: processes compare it.
    """

    lid: int
    gids: tuple[int, int] | None = None  # theirs, ours
    sl: int = field(default=0, compare=False, repr=False)
    path_bits: int = field(default=0, compare=False, repr=False)
    flow_label: int = field(default=0, compare=False, repr=False)
    hop_limit: int = field(default=64, compare=False, repr=False)
    traffic_class: int = field(default=0, compare=False, repr=False)
