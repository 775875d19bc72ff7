"""Spec strings: a fabric in one line, or the path of a file.

    star:hosts=16                            a topology and its parameters (`weft topologies` lists them)
    fat-tree:1024,switch=QM9700              the name of the first parameter may be omitted
    torus:4x4x4
    subnets:2,routers=1,of=star:hosts=4      several subnets of the same spec, joined by routers
    selene.ibnetdiscover                     a file in any format that weft reads; - is standard input
    selene.txt as luna-*=dgx-a100            a file whose matching servers get the devices of a catalog server

The parameters are those of the topology's function; `weft.fabric.topologies.registry` reads its signature.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from weft.errors import ConfigError, UnknownName
from weft.fabric import catalog, subnets
from weft.fabric.files import hostlist
from weft.fabric.files.text import STANDARD
from weft.fabric.model import Fabric
from weft.fabric.topologies.registry import TOPOLOGIES, Parameter, parameters, usage, write_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A topology in the list of `weft topologies`."""

    name: str
    summary: str
    usage: str
    example: str
    parameters: tuple[Parameter, ...]


def load(spec: str) -> Fabric:
    """Return the fabric of a spec: a topology with its parameters, or the path of a file."""
    name, _, rest = spec.strip().partition(":")
    if name in TOPOLOGIES:
        return TOPOLOGIES[name](**_parse(name, rest))
    if name == subnets.KEYWORD:
        return subnets.build_subnets(rest, load)
    if spec == STANDARD or os.path.exists(spec):
        from weft.fabric.files import read

        return read(Path(spec))
    file, kinds = split_kinds(spec)
    if kinds:
        from weft.fabric.server_model import attach_server_model

        bare = load(file)
        # the spec itself contains the models
        return replace(attach_server_model(bare, kinds), spec=spec, changes=bare.changes)
    hint = "`weft topologies` lists them; for a file, give its path."
    if "/" in name or "." in name:
        raise ConfigError(f"there is neither a file nor a topology {spec!r}\n  {hint}")
    if name in {server.name for server in catalog.servers()}:
        raise ConfigError(f"{name} is a server, not a fabric; write star:hosts=2,server={name}\n  {hint}")
    raise UnknownName("topology", name, sorted(TOPOLOGIES), hint)


_AS = " as "


def as_kinds(spec: str, kinds: str) -> str:
    """Return the spec of a file with these server models: `luna-*=dgx-a100,gw1=host`; without models, the file."""
    if not kinds:
        return spec
    if is_topology(spec):
        raise ConfigError(f"{spec} as {kinds}: --as is for files; a topology takes server=")
    return f"{spec}{_AS}{kinds}"


def split_kinds(spec: str) -> tuple[str, dict[str, str]]:
    """Split a spec into the file and pattern -> template; no templates if the spec is only a topology or a file."""
    file, separator, text = spec.rpartition(_AS)
    if not separator or is_topology(spec) or os.path.exists(spec):
        return spec, {}
    kinds: dict[str, str] = {}
    for item in hostlist.split(text):
        pattern, equals, template = (part.strip() for part in item.partition("="))
        if not (pattern and equals and template):
            raise ConfigError(f"{spec}: {item.strip()!r} is not PATTERN=TEMPLATE: write luna-*=dgx-a100")
        if pattern in kinds:
            raise ConfigError(f"{spec}: {pattern} is given twice; give it once")
        kinds[pattern] = template
    return file, kinds


def is_topology(spec: str) -> bool:
    """Return whether a spec is a topology with parameters, not a file."""
    return spec.strip().partition(":")[0] in (*TOPOLOGIES, subnets.KEYWORD)


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters of a topology's spec."""
    name, _, rest = spec.strip().partition(":")
    if name not in TOPOLOGIES:
        raise ConfigError(f"{spec} is not a single topology: give one of `weft topologies`")
    return name, _parse(name, rest)


def rewrite(spec: str, **changes: object) -> str:
    """Return the spec of the same topology with other parameters; None restores a default."""
    name, arguments = parse(spec)
    return write_spec(name, {key: value for key, value in {**arguments, **changes}.items() if value is not None})


def describe() -> list[Topology]:
    """Return all usable topologies, by name."""
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
    """Return the arguments of a topology from `key=value,key=value`."""
    allowed = parameters(name)
    arguments: dict[str, Any] = {}
    for place, item in enumerate(text.split(",") if text.strip() else []):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            if place > 0 or not key:
                raise ConfigError(f"{name}: {item.strip()!r} is not a parameter and its value\n  {usage(name)}")
            key, value = next(iter(allowed)), key
        if key not in allowed:
            raise UnknownName(f"parameter of {name}", key, allowed, usage(name))
        if key in arguments:
            raise ConfigError(f"{name}: {key} is given twice\n  {usage(name)}")
        arguments[key] = _convert(name, allowed[key], value)
    for key, parameter in allowed.items():
        if parameter.required and key not in arguments:
            raise ConfigError(f"{name} needs {key}: {parameter.meaning}\n  {usage(name)}")
    return arguments


# kind of parameter -> its pattern, its name in errors, its parser
_KINDS: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "int": (r"-?[0-9]{1,18}", "a whole number", int),
    "float": (r"-?[0-9]{1,18}(\.[0-9]*)?", "a number", float),
    "sizes": (r"-?[0-9]{1,18}(x-?[0-9]{1,18})*", "sizes such as 4x4x4", lambda text: tuple(map(int, text.split("x")))),
    "str": (r".+", "a name", str),
}


def _convert(name: str, parameter: Parameter, text: str) -> Any:
    form, description, read = _KINDS[parameter.kind]
    if not re.fullmatch(form, text):
        raise ConfigError(f"{name}: {parameter.name}={text} is not {description}\n  {usage(name)}")
    return read(text)
