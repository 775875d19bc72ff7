"""What a server says of its own parts, before it is a template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Devices are gpu0, gpu1 and so on, and adapters by the names of their driver."""

    gpus: Sequence[str]
    adapters: Sequence[str]
    sockets: Sequence[Sequence[Sequence[str]]]  # processor -> groups of devices, each below one PCIe switch
    nvlink_spread: Sequence[int] = ()
    nvlink_pairs: Sequence[tuple[str, str, int]] = ()  # that join two GPUs directly
    only_pairs: bool = False  # the spread is what a pair of GPUs has, over NVSwitches or directly
    c2c_links: int = 0  # of a GPU to its processor
    gpu_models: Sequence[str] = ()  # those of the catalog that it can be
    cards: Mapping[str, str] = field(default_factory=dict)  # adapter -> model, where it is known
    pcie: str = ""  # of a switch, towards the processor
    cpu: dict[str, Any] | None = None
    bus_id: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> list[Sequence[str]]:
        return [group for groups in self.sockets for group in groups]
