"""What to order for the cables of a floor plan: lots of one part and one length, in the vendor's numbers.

A cable of weft is one link. A twin-port cable carries two where they end in the same cages; a transceiver fills a
cage of a switch, which may have two ports, or one of an adapter.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.fabric import catalog
from weft.plan.cables import Cabling
from weft.plan.runs import cages


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """Cables of one part and one length, to servers or between switches."""

    part: catalog.Cable
    length_m: float
    in_servers: int  # how many ends of each are in servers
    links: int
    pieces: int  # cables or fibres to order
    cages: int  # of switches that they fill; one that two lots share is counted once

    def __str__(self) -> str:
        """`64 × MMA4Z00-NS, 128 × MMA4Z00-NS400, 128 × MFP7E10 10 m`."""
        wanted: Counter[str] = Counter()
        if self.part.transceivers is not None:
            at_switch, at_adapter = self.part.transceivers
            wanted[at_switch] += self.cages
            wanted[at_adapter] += self.in_servers * self.links
        wanted[f"{self.part.part} {self.length_m:g} m"] += self.pieces
        return ", ".join(f"{count:,} × {name}" for name, count in wanted.items() if count)


def find_lots(cabling: Cabling) -> list[Lot]:
    """Those to servers first, then by part and length."""
    tier = cabling.racks.tier
    in_servers = (tier[cabling.low_box] == 0).astype(np.int64) + (tier[cabling.high_box] == 0)
    keys = np.stack((-in_servers, cabling.part, np.round(1000 * cabling.length_m).astype(np.int64)))
    kinds, lot = np.unique(keys, axis=1, return_inverse=True)
    links = np.bincount(lot, minlength=kinds.shape[1])
    cages = np.bincount(lot, weights=_filled(cabling), minlength=kinds.shape[1])
    carries = np.array([part.links for part in cabling.parts])[kinds[1]]
    pieces = _pieces(lot, cabling.joint, carries)
    return [
        Lot(
            part=cabling.parts[part],
            length_m=length_mm / 1000,
            in_servers=-ends,
            links=int(links[at]),
            pieces=int(pieces[at]),
            cages=int(cages[at]),
        )
        for at, (ends, part, length_mm) in enumerate(kinds.T.tolist())
    ]


def _pieces(lot: NDArray[np.int64], joint: NDArray[np.int32], carries: NDArray[np.int64]) -> NDArray[np.int64]:
    """[lot] -> cables, where those that hang together by their plugs share them."""
    (of_lot, _), count = np.unique(np.stack((lot, joint)), axis=1, return_counts=True)
    pieces: NDArray[np.int64] = np.bincount(of_lot, weights=-(-count // carries[of_lot]), minlength=len(carries))
    return pieces


def _filled(cabling: Cabling) -> NDArray[np.int64]:
    """[cable] -> cages of switches that it ends in, each counted at the first cable that does."""
    slots = np.concatenate((cabling.low_slot, cabling.high_slot))
    at_switch = cabling.racks.tier[np.concatenate((cabling.low_box, cabling.high_box))] > 0
    found, first = np.unique(np.where(at_switch, cages(cabling.fabric)[slots], -1), return_index=True)
    filled = np.zeros(len(slots), np.int64)
    filled[first[found >= 0]] = 1
    return filled[: len(cabling)] + filled[len(cabling) :]
