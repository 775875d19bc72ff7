"""All topologies by name. The signature of a generator is the grammar of its spec:

    @topology("torus", example="torus:4x4x4,hosts=2")
    def torus(dims: Dims, *, hosts: HostsPerSwitch = 1, ...) -> Fabric: ...

    weft.load("torus:4x4x4,hosts=2")  =  torus((4, 4, 4), hosts=2)

Either way the numbers are checked, and the fabric's `spec` is the canonical spec of its parameters.
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
        "hpn": f"{_HERE}.hpn:hpn",
        "hyperx": f"{_HERE}.hyperx:hyperx",
        "mesh": f"{_HERE}.torus:mesh",
        "slim-fly": f"{_HERE}.slim_fly:slim_fly",
        "star": f"{_HERE}.star:star",
        "superpod": f"{_HERE}.superpod:superpod",
        "torus": f"{_HERE}.torus:torus",
    },
    "a function below @topology(name, example=...), with the same name there",
    lambda name, generate: getattr(generate, "topology", "") == name,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a topology, as a spec writes it."""

    name: str
    kind: str  # int, float, str, or sizes: 4x4x4
    meaning: str
    required: bool
    default: Any  # None if the meaning explains it

    @property
    def form(self) -> str:
        """The form in the usage line: `hosts=N`, `[,server=host]`; sizes without a name."""
        if self.kind == "sizes":
            return "4x4x4"
        placeholder = "NAME" if self.kind == "str" else "N"
        return f"{self.name}={placeholder if self.default is None else write_value(self.default)}"


def topology(name: str, *, example: str) -> Callable[[Callable[_P, Fabric]], Callable[_P, Fabric]]:
    """Mark a function as the generator of a topology with this name."""

    def decorate(generate: Callable[_P, Fabric]) -> Callable[_P, Fabric]:
        signature = _signature(generate)
        for parameter in signature.parameters.values():
            _check_annotation(name, parameter)

        @functools.wraps(generate)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> Fabric:
            arguments = signature.bind(*args, **kwargs).arguments
            _check_numbers(name, arguments)
            return replace(generate(*args, **kwargs), spec=write_spec(name, arguments))

        vars(checked).update(topology=name, example=example, __signature__=signature)
        return checked

    return decorate


@functools.cache
def parameters(name: str) -> dict[str, Parameter]:
    """Return the parameters of a topology by name, in the order of its signature."""
    return {key: _parameter(parameter) for key, parameter in inspect.signature(TOPOLOGIES[name]).parameters.items()}


def _signature(generate: Callable[_P, Fabric]) -> inspect.Signature:
    """Return the signature of a generator, with the keys of `**options: Unpack[...]` as optional parameters."""
    hints = get_type_hints(generate, include_extras=True)
    own: list[inspect.Parameter] = []
    for parameter in inspect.signature(generate).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = get_args(hints[parameter.name])
            for key, hint in get_type_hints(options, include_extras=True).items():
                own.append(inspect.Parameter(key, parameter.KEYWORD_ONLY, default=None, annotation=hint))
        else:
            own.append(parameter.replace(annotation=hints.get(parameter.name, parameter.empty)))
    return inspect.Signature(own)


def _check_annotation(name: str, parameter: inspect.Parameter) -> None:
    if get_origin(parameter.annotation) is not Annotated:
        annotation = "none" if parameter.annotation is parameter.empty else repr(parameter.annotation)
        raise ConfigError(
            f"topology {name}: parameter {parameter.name} needs a type and a meaning: "
            f'Annotated[int, "hosts"], not {annotation}'
        )


def _parameter(parameter: inspect.Parameter) -> Parameter:
    """Read an annotation Annotated[type, meaning]; `T | None` is an optional T."""
    kind, meaning = get_args(parameter.annotation)
    if get_origin(kind) is UnionType:
        (kind,) = (option for option in get_args(kind) if option is not NoneType)
    required = parameter.default is inspect.Parameter.empty
    return Parameter(
        name=parameter.name,
        kind="sizes" if get_origin(kind) is tuple else kind.__name__,
        meaning=meaning,
        required=required,
        default=None if required else parameter.default,
    )


def usage(name: str) -> str:
    """Return the usage line with the defaults: `fat-tree:hosts=N[,levels=N][,...]`."""
    forms = [p.form if p.required else f"[,{p.form}]" for p in parameters(name).values()]
    required = ",".join(form for form in forms if not form.startswith("["))
    return f"{name}:{required}" + "".join(form for form in forms if form.startswith("["))


def write_spec(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the canonical spec: parameters in the order of the signature, without defaults."""
    parts = []
    for key, parameter in parameters(name).items():
        if key in arguments and (parameter.required or arguments[key] != parameter.default):
            value = write_value(arguments[key])
            parts.append(value if parameter.kind == "sizes" else f"{key}={value}")
    return f"{name}:{','.join(parts)}"


def write_value(value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(str(size) for size in value)
    return str(value).removesuffix(".0")


def _check_numbers(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError for numbers below 1: all numbers in specs are counts, or ratios of at least 1."""
    for key, value in arguments.items():
        numbers = value if isinstance(value, tuple) else (value,)
        for number in numbers:
            if isinstance(number, Real) and not 1 <= float(number) < math.inf:
                raise ConfigError(f"{name}: {key}={write_value(value)} must be at least 1\n  {usage(name)}")
