"""Spec strings: a fabric in one line, or the path of a file.

    star:hosts=16                            a topology and its parameters (`weft topologies` lists them)
    fat-tree:1024,switch=QM9700              the first value may go without its name
    torus:4x4x4
    selene.ibnetdiscover                     a file in any format that weft reads; - is standard input
    selene.txt as luna-*=dgx-a100            its servers of that name with what is inside of one of the catalog

The parameters are those of the topology's function; `weft.fabric.topologies.registry` reads them off its signature.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from weft.errors import ConfigError, UnknownName
from weft.fabric import catalog
from weft.fabric.files.streams import STANDARD
from weft.fabric.model import Fabric
from weft.fabric.topologies.registry import TOPOLOGIES, Parameter, parameters, usage, write_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What `weft topologies` tells of one."""

    name: str
    summary: str
    usage: str
    example: str
    parameters: tuple[Parameter, ...]


def load(spec: str) -> Fabric:
    """The fabric of a spec: a topology with its parameters, or the path of a file."""
    name, _, rest = spec.strip().partition(":")
    if name in TOPOLOGIES:
        return TOPOLOGIES[name](**_parse(name, rest))
    if spec == STANDARD or os.path.exists(spec):
        from weft.fabric.files import read

        return read(Path(spec))
    file, kinds = split_kinds(spec)
    if kinds:
        from weft.fabric.furnish import furnish

        bare = load(file)
        return replace(furnish(bare, kinds), spec=spec, changes=bare.changes)  # the spec says it
    hint = "`weft topologies` lists them; for a file, give its path."
    if "/" in name or "." in name:
        raise ConfigError(f"there is no file {spec!r}, and no topology of that name either\n  {hint}")
    if name in {one.name for one in catalog.servers()}:
        raise ConfigError(f"{name} is a server, and a fabric has some: star:hosts=2,server={name}\n  {hint}")
    raise UnknownName("topology", name, sorted(TOPOLOGIES), hint)


_AS = " as "


def as_kinds(spec: str, kinds: str) -> str:
    """The spec of a file whose servers are of these kinds: `luna-*=dgx-a100,gw1=host`; none: the file as it is."""
    if not kinds:
        return spec
    if is_topology(spec):
        raise ConfigError(
            f"{spec} as {kinds}: servers of a topology are what its server= says, those of a file have --as"
        )
    return f"{spec}{_AS}{kinds}"


def split_kinds(spec: str) -> tuple[str, dict[str, str]]:
    """The file, and pattern -> template; none where the spec is a topology or a file and no more."""
    file, separator, text = spec.rpartition(_AS)
    if not separator or is_topology(spec) or os.path.exists(spec):
        return spec, {}
    kinds: dict[str, str] = {}
    for item in text.split(","):
        pattern, equals, template = (part.strip() for part in item.partition("="))
        if not (pattern and equals and template):
            raise ConfigError(f"{spec}: {item.strip()!r} is no pattern and template: write luna-*=dgx-a100")
        if pattern in kinds:
            raise ConfigError(f"{spec}: {pattern} is given twice: a server is of one kind")
        kinds[pattern] = template
    return file, kinds


def is_topology(spec: str) -> bool:
    """A topology with parameters, and no file."""
    return spec.strip().partition(":")[0] in TOPOLOGIES


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """Name and parameters of a topology's spec."""
    name, _, rest = spec.strip().partition(":")
    return name, _parse(name, rest)


def rewrite(spec: str, **changes: object) -> str:
    """The spec of the same topology with other parameters; one that becomes None goes back to its default."""
    name, given = parse(spec)
    return write_spec(name, {key: value for key, value in {**given, **changes}.items() if value is not None})


def describe() -> list[Topology]:
    """Return all topologies that can be built, by name."""
    return [
        Topology(
            name=name,
            summary=(generate.__doc__ or "").partition("\n")[0],
            usage=usage(name),
            example=vars(generate)["example"],
            parameters=tuple(parameters(name).values()),
        )
        for name, generate in sorted(TOPOLOGIES.working().items())
    ]


def _parse(name: str, text: str) -> dict[str, Any]:
    """The arguments of a topology from `key=value,key=value`."""
    known = parameters(name)
    given: dict[str, Any] = {}
    for place, item in enumerate(text.split(",") if text.strip() else []):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            if place > 0 or not key:
                raise ConfigError(f"{name}: {item.strip()!r} is not a parameter and its value\n  {usage(name)}")
            key, value = next(iter(known)), key
        if key not in known:
            raise UnknownName(f"parameter of {name}", key, known, usage(name))
        if key in given:
            raise ConfigError(f"{name}: {key} is given twice\n  {usage(name)}")
        given[key] = _convert(name, known[key], value)
    for key, parameter in known.items():
        if parameter.required and key not in given:
            raise ConfigError(f"{name} needs {key}: {parameter.meaning}\n  {usage(name)}")
    return given


# kind of parameter -> what it looks like, what to call it, how to read it
_KINDS: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "int": (r"-?[0-9]{1,18}", "a whole number", int),
    "float": (r"-?[0-9]{1,18}(\.[0-9]*)?", "a number", float),
    "sizes": (r"-?[0-9]{1,18}(x-?[0-9]{1,18})*", "sizes such as 4x4x4", lambda text: tuple(map(int, text.split("x")))),
    "str": (r".+", "a name", str),
}


def _convert(name: str, parameter: Parameter, text: str) -> Any:
    form, meant, read = _KINDS[parameter.kind]
    if not re.fullmatch(form, text):
        raise ConfigError(f"{name}: {parameter.name}={text} is not {meant}\n  {usage(name)}")
    return read(text)
