"""Line speeds: the signalling rate of a lane, its encoding, and the data rate that remains.

    data rate = lanes × signalling rate × data bits / line bits

InfiniBand's names go by generation and width (`4xNDR`); Ethernet's by total (`400GbE`); NVLink's by generation and
link; PCIe's by generation and lanes (`16xPCIe5`). The figures are data: `catalog/speeds.toml`.
"""

from __future__ import annotations

import datetime
import enum
import re
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, SimulationBug, find_named
from weft.wire.port_info import LANES, LinkSpeed


class Technology(enum.StrEnum):
    """The protocol of a link."""

    INFINIBAND = "infiniband"
    ETHERNET = "ethernet"
    OMNI_PATH = "omni-path"
    NVLINK = "nvlink"
    PCIE = "pcie"


class Sourced(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The figures of a catalog file with their source."""

    source: str
    date: datetime.date
    note: str = ""


class Encoding(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An encoding: line bits that carry so many data bits."""

    data_bits: int
    line_bits: int


class Speed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A generation of a technology."""

    name: str
    index: int
    technology: Technology
    lane_signal_gbit_s: float
    lane_gbit_s: float
    encoding: str
    widths: tuple[int, ...]
    source: str
    date: datetime.date
    year: int | None = None

    @property
    def default_width(self) -> int:
        """The usual width: 4x for InfiniBand, x16 for PCIe, else the widest."""
        return 4 if self.technology is Technology.INFINIBAND else self.widths[-1]

    def rate_gbit_s(self, width: int | None = None) -> float:
        """Return the data rate in one direction."""
        return self.lane_gbit_s * self.check_width(self.default_width if width is None else width)

    def check_width(self, width: int) -> int:
        if width not in self.widths:
            allowed = ", ".join(f"{w}x" for w in self.widths)
            raise ConfigError(f"{self.name} has no width {width}x: it comes in {allowed}")
        return width

    def label(self, width: int) -> str:
        """Return the label that ibnetdiscover prints: `4xNDR`; without the width if only one exists: `400GbE`."""
        return self.name if len(self.widths) == 1 else f"{width}x{self.name}"


def read_data(package: str, file: str) -> dict[str, Any]:
    """Read a TOML file of a package of weft."""
    import tomllib

    return tomllib.loads(files(package).joinpath(file).read_text(encoding="utf-8"))


def read_catalog(file: str) -> dict[str, Any]:
    """Read a TOML file of the catalog."""
    return read_data("weft.fabric", f"catalog/{file}")


@cache
def speeds() -> tuple[Speed, ...]:
    """Return all speeds, in the order of their index in a fabric's arrays."""
    tables = read_catalog("speeds.toml")
    encodings = msgspec.convert(tables["encoding"], dict[str, Encoding])
    all_speeds = []
    for index, (name, entry) in enumerate(tables["speed"].items()):
        encoding = encodings[entry["encoding"]]
        lane_gbit_s = entry["lane_signal_gbit_s"] * encoding.data_bits / encoding.line_bits
        all_speeds.append(msgspec.convert({**entry, "name": name, "index": index, "lane_gbit_s": lane_gbit_s}, Speed))
    if len(all_speeds) > 127:
        raise SimulationBug("speeds.toml has more speeds than an int8 column can index")
    return tuple(all_speeds)


@cache
def speed(name: str) -> Speed:
    """Return the speed with this name, ignoring case: `speed("ndr")`."""
    return find_named("speed", name, {each.name: each for each in speeds()}, "`weft links` lists them all.")


@cache
def speed_by_bits() -> NDArray[np.int8]:
    """Return the index of the fastest speed for each value of LinkSpeed's bits; SDR for none."""
    fastest = (LinkSpeed.highest(speeds).name or "SDR" for speeds in range(1024))
    return np.array([speed(name).index for name in fastest], np.int8)


@cache
def lanes_by_code() -> NDArray[np.int8]:
    """Return the lanes of each LinkWidthActive; 1 for an invalid width."""
    return np.array([LANES.get(width, 1) for width in range(256)], np.int8)


_LABEL = re.compile(r"(?:(?P<width>\d{1,3})x)?(?P<speed>[A-Za-z0-9-]+)")


def parse_label(label: str) -> tuple[Speed, int]:
    """Parse the speed and width of `4xNDR`, `NDR`, `400GbE`, `16xPCIe5`."""
    match = _LABEL.fullmatch(label.strip())
    if match is None:
        raise ConfigError(f"link speed {label!r} is not a width and a generation: write 4xNDR, HDR or 400GbE")
    generation = speed(match["speed"])
    return generation, generation.check_width(int(match["width"]) if match["width"] else generation.default_width)
