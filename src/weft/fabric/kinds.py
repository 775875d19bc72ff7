"""Kinds of nodes, and media of links."""

from __future__ import annotations

import enum


class NodeKind(enum.IntEnum):
    """The kind of a node. Aggregation nodes are the channel adapters inside switches that SHARP reduces in."""

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
        """The kind as it is usually written: `HCA`, `NVSwitch`, `PCIe switch`."""
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
    """The medium of a link."""

    UNKNOWN = 0
    BOARD = 1  # traces and backplanes inside a server
    DAC = 2  # direct attach copper
    ACC = 3  # active copper
    AOC = 4  # active optical
    TRANSCEIVER = 5  # two transceivers and a fibre
