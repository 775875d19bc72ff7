"""Arguments as users write them: a fabric or its spec, `1G` or bytes, `8` or 8."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from weft.errors import ConfigError, UnknownName
from weft.fabric.model import Fabric
from weft.fabric.spec import load
from weft.routing.route import Routing
from weft.units import parse_size_bytes

PathLike = str | os.PathLike[str]
FabricLike = PathLike | Fabric | Routing


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
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    raise ConfigError(f"{name} must be a number, text or a list of names, got {value!r}")


def read_number(name: str, value: float | str) -> float:
    """Return a number from a number or its text."""
    try:
        if not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"{name} must be a number, got {value!r}")


def read_text(name: str, value: str) -> str:
    """Return text. Raise ConfigError for an object of another type."""
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be text, got {value!r}")
    return value


def read_path(name: str, value: PathLike) -> Path:
    """Return the path of a file or a folder."""
    if not isinstance(value, str | os.PathLike):
        raise ConfigError(f"{name} must be a path, got {value!r}")
    return Path(value)


_READERS: dict[str, Callable[[str, Any], Any]] = {"int": read_whole, "float": read_number, "str": read_text}


def read_fields(kind: str, values: Mapping[str, Any], options: type[Any], *others: str) -> dict[str, Any]:
    """Return fields of a dataclass of options, with numbers read from text. Other names must be among `others`."""
    types = {field.name: str(field.type) for field in fields(options)} | dict.fromkeys(others, "int")
    unknown = next((name for name in values if name not in types), None)
    if unknown is not None:
        raise UnknownName(kind, unknown, sorted(types))
    readers = {name: _READERS.get(types[name]) for name in values}
    return {name: read(name, values[name]) if read else values[name] for name, read in readers.items()}
