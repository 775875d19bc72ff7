"""All topologies by name. The signature of a generator is the grammar of its spec:

    @topology("torus", example="torus:4x4x4,hosts=2")
    def torus(dims: Dims, *, hosts: HostsPerSwitch = 1, ...) -> Fabric: ...

    weft.load("torus:4x4x4,hosts=2")  =  torus((4, 4, 4), hosts=2)

Whichever way it is called, its numbers are checked, and the fabric's `spec` is the one way to write what was asked for.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from types import NoneType, UnionType
from typing import Annotated, Any, ParamSpec, get_args, get_origin, get_type_hints

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.plugins import Registry

_P = ParamSpec("_P")

_HERE = "weft.fabric.topologies"
TOPOLOGIES: Registry[Callable[..., Fabric]] = Registry(
    "weft.topologies",
    {
        "dragonfly": f"{_HERE}.dragonfly:dragonfly",
        "dragonfly+": f"{_HERE}.dragonfly:dragonfly_plus",
        "fat-tree": f"{_HERE}.fat_tree:fat_tree",
        "hyperx": f"{_HERE}.hyperx:hyperx",
        "mesh": f"{_HERE}.torus:mesh",
        "star": f"{_HERE}.star:star",
        "superpod": f"{_HERE}.superpod:superpod",
        "torus": f"{_HERE}.torus:torus",
    },
    "a function below @topology(name, example=...), with the same name there",
    lambda name, thing: getattr(thing, "topology", "") == name,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a topology, as a spec writes it."""

    name: str
    kind: str  # int, float, str, or sizes: 4x4x4
    meaning: str
    required: bool
    default: Any  # None where the meaning tells it

    @property
    def form(self) -> str:
        """As the usage line shows it: `hosts=N`, `[,server=host]`; sizes stand bare."""
        if self.kind == "sizes":
            return "4x4x4"
        placeholder = "NAME" if self.kind == "str" else "N"
        return f"{self.name}={placeholder if self.default is None else write_value(self.default)}"


def topology(name: str, *, example: str) -> Callable[[Callable[_P, Fabric]], Callable[_P, Fabric]]:
    """Make a generator what a door takes under this name."""

    def made(generate: Callable[_P, Fabric]) -> Callable[_P, Fabric]:
        signature = _signature(generate)
        for given in signature.parameters.values():
            _check_annotation(name, given)

        @functools.wraps(generate)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> Fabric:
            given = signature.bind(*args, **kwargs).arguments
            _check_numbers(name, given)
            return replace(generate(*args, **kwargs), spec=write_spec(name, given))

        vars(checked).update(topology=name, example=example, __signature__=signature)
        return checked

    return made


@functools.cache
def parameters(name: str) -> dict[str, Parameter]:
    """The parameters of a topology by name, in the order of its signature."""
    return {key: _parameter(given) for key, given in inspect.signature(TOPOLOGIES[name]).parameters.items()}


def _signature(generate: Callable[_P, Fabric]) -> inspect.Signature:
    """That of a generator, the keys of `**options: Unpack[...]` as parameters of their own, which may be left out."""
    hints = get_type_hints(generate, include_extras=True)
    own: list[inspect.Parameter] = []
    for given in inspect.signature(generate).parameters.values():
        if given.kind is given.VAR_KEYWORD:
            (options,) = get_args(hints[given.name])
            for key, hint in get_type_hints(options, include_extras=True).items():
                own.append(inspect.Parameter(key, given.KEYWORD_ONLY, default=None, annotation=hint))
        else:
            own.append(given.replace(annotation=hints.get(given.name, given.empty)))
    return inspect.Signature(own)


def _check_annotation(name: str, given: inspect.Parameter) -> None:
    if get_origin(given.annotation) is not Annotated:
        said = "none" if given.annotation is given.empty else repr(given.annotation)
        raise ConfigError(
            f"topology {name}: parameter {given.name} needs a type and what it means: "
            f'Annotated[int, "hosts"], not {said}'
        )


def _parameter(given: inspect.Parameter) -> Parameter:
    """Its annotation is Annotated[type, meaning]; `T | None` stands for an optional T."""
    kind, meaning = get_args(given.annotation)
    if get_origin(kind) is UnionType:
        (kind,) = (option for option in get_args(kind) if option is not NoneType)
    required = given.default is inspect.Parameter.empty
    return Parameter(
        name=given.name,
        kind="sizes" if get_origin(kind) is tuple else kind.__name__,
        meaning=meaning,
        required=required,
        default=None if required else given.default,
    )


def usage(name: str) -> str:
    """`fat-tree:hosts=N[,levels=N][,...]`: what may be written, with the defaults."""
    forms = [p.form if p.required else f"[,{p.form}]" for p in parameters(name).values()]
    required = ",".join(form for form in forms if not form.startswith("["))
    return f"{name}:{required}" + "".join(form for form in forms if form.startswith("["))


def write_spec(name: str, given: Mapping[str, Any]) -> str:
    """The one way to write it: in the order of the signature, without what is default anyway."""
    parts = []
    for key, parameter in parameters(name).items():
        if key in given and (parameter.required or given[key] != parameter.default):
            value = write_value(given[key])
            parts.append(value if parameter.kind == "sizes" else f"{key}={value}")
    return f"{name}:{','.join(parts)}"


def write_value(value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(str(size) for size in value)
    return str(value).removesuffix(".0")


def _check_numbers(name: str, given: Mapping[str, Any]) -> None:
    """All numbers in specs count things, or are ratios of which 1 is the least."""
    for key, value in given.items():
        numbers = value if isinstance(value, tuple) else (value,)
        for number in numbers:
            if isinstance(number, Real) and not 1 <= float(number) < math.inf:
                raise ConfigError(f"{name}: {key}={write_value(value)} must be at least 1\n  {usage(name)}")
