"""Define the address of a peer on InfiniBand."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AddressVector:
    """An address vector. Two are equal if they have the same peer: by LID, and by GIDs if they have any.

    Its text has the same fields: processes compare it.
    """

    lid: int
    gids: tuple[int, int] | None = None  # destination, source
    sl: int = field(default=0, compare=False, repr=False)
    path_bits: int = field(default=0, compare=False, repr=False)
    flow_label: int = field(default=0, compare=False, repr=False)
    hop_limit: int = field(default=64, compare=False, repr=False)
    traffic_class: int = field(default=0, compare=False, repr=False)
