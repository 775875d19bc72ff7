"""The parts of a server as its own tools report them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine: GPUs are gpu0, gpu1, ...; adapters have the names of their driver."""

    gpus: Sequence[str]
    adapters: Sequence[str]
    sockets: Sequence[Sequence[Sequence[str]]]  # processor -> groups of devices, each below one PCIe switch
    nvlink_spread: Sequence[int] = ()
    nvlink_pairs: Sequence[tuple[str, str, int]] = ()  # direct links between two GPUs
    only_pairs: bool = False  # the spread is that of a pair of GPUs, over NVSwitches or direct
    c2c_links: int = 0  # from a GPU to its processor
    gpu_models: Sequence[str] = ()  # matching models of the catalog
    cards: Mapping[str, str] = field(default_factory=dict)  # adapter -> model, if known
    pcie: str = ""  # from a switch to the processor
    cpu: dict[str, Any] | None = None
    bus_id: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> list[Sequence[str]]:
        return [group for groups in self.sockets for group in groups]
