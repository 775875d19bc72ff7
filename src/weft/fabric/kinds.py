"""What a node is, and what a link is made of."""

from __future__ import annotations

import enum


class NodeKind(enum.IntEnum):
    """What a node is. Aggregation nodes are the channel adapters inside switches that SHARP reduces in."""

    SWITCH = 1
    HCA = 2
    AGGREGATION = 3
    ROUTER = 4
    GPU = 5
    NVSWITCH = 6
    PCIE_SWITCH = 7
    CPU = 8

    @property
    def label(self) -> str:
        """As people write it: `HCA`, `NVSwitch`, `PCIe switch`."""
        return _LABELS.get(self, self.name.lower())


_LABELS = {
    NodeKind.HCA: "HCA",
    NodeKind.AGGREGATION: "aggregation node",
    NodeKind.GPU: "GPU",
    NodeKind.NVSWITCH: "NVSwitch",
    NodeKind.PCIE_SWITCH: "PCIe switch",
    NodeKind.CPU: "CPU",
}


class Medium(enum.IntEnum):
    """What a link is made of."""

    UNKNOWN = 0
    BOARD = 1  # traces and backplanes inside a box
    DAC = 2  # direct attach copper
    ACC = 3  # active copper
    AOC = 4  # active optical
    TRANSCEIVER = 5  # two transceivers and a fibre
