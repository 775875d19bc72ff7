"""Arguments as users write them: a fabric or its spec, `1G` or bytes, `8` or 8."""

from __future__ import annotations

import os
from collections.abc import Sequence

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.routing.route import Routing
from weft.units import parse_size_bytes

FabricLike = str | os.PathLike[str] | Fabric | Routing


def read_fabric(fabric: FabricLike) -> Fabric:
    """Return the fabric itself, that of a routing, or that of a spec or a file."""
    if isinstance(fabric, Fabric):
        return fabric
    if isinstance(fabric, Routing):
        return fabric.fabric
    return load(read_spec(fabric))


def read_spec(fabric: object) -> str:
    """Return a spec or the path of a file as text."""
    if not isinstance(fabric, str | os.PathLike):
        raise ConfigError(f"a fabric is a Fabric, a spec such as 'superpod:su=1' or the path of a file, got {fabric!r}")
    spec = str(fabric)
    if not spec.strip():
        raise ConfigError("the spec of the fabric is empty: write a topology such as 'superpod:su=1', or a path")
    return spec


def read_size_bytes(size: int | str) -> int:
    """Return a size in bytes from a number or from text such as `1G`."""
    if isinstance(size, str):
        return parse_size_bytes(size)
    if isinstance(size, bool) or not isinstance(size, int):
        raise ConfigError(f"size must be a whole number of bytes or text such as '1G', got {size!r}")
    if size < 0:
        raise ConfigError(f"size must be 0 bytes or more, got {size}")
    return size


def read_whole(name: str, value: int | str) -> int:
    """Return a whole number from a number or its text."""
    if isinstance(value, str) and value.strip().removeprefix("-").isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} must be a whole number, got {value!r}")
    return value


def read_names(name: str, value: str | int | Sequence[str]) -> str:
    """Return names as a command line has them, separated by commas."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    raise ConfigError(f"{name} must be a number, text or a list of names, got {value!r}")
