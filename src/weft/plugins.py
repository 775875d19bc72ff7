"""Registries for extensions: topologies, routing engines, file formats and more, from weft and from plugins.

    [project.entry-points."weft.topologies"]              in pyproject.toml of an installed package
    ring = "acme.fabrics:ring"

    ENTRY_POINTS = {"weft.topologies": {"ring": ring}}    in a file: weft --plugin ring.py, or WEFT_PLUGINS=ring.py

A registry lists all names and imports an object when it is first used. A plugin that cannot be imported, or that does
not fit the rule of its registry, is an error for a command that names it; lists omit it and report it on standard
error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from weft.errors import ConfigError, UnknownName

VARIABLE = "WEFT_PLUGINS"
GROUPS = tuple(
    f"weft.{each}" for each in ("topologies", "routing", "congestion", "paths", "collectives", "scenarios", "files")
)
_T = TypeVar("_T")
_Offer = tuple[str, Any]  # the provider, and the object or its module:object reference


class Registry(Mapping[str, _T]):
    """The extensions of one kind by name: weft's own first, then those of plugins.

    `own` maps names to objects or to their module:object references. A class is instantiated once.
    `rule` describes a valid object in error messages; `fits(name, object)` tells whether an object is valid.
    """

    def __init__(self, group: str, own: Mapping[str, _T | str], rule: str, fits: Callable[[str, Any], bool]) -> None:
        self._group, self._own, self._rule, self._fits = group, own, rule, fits
        self._loaded: dict[int, _T] = {}  # by the id of the object or reference, which stays alive

    def __iter__(self) -> Iterator[str]:
        return iter({**self._own, **_offers(self._group)})

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in _offers(self._group)

    def __getitem__(self, name: str) -> _T:
        own: list[_Offer] = [("weft", self._own[name])] if name in self._own else []
        offers = own + _offers(self._group).get(name, [])
        if not offers:
            raise KeyError(name)
        extensions = [self._load_offer(name, *offer) for offer in offers]
        if any(extension is not extensions[0] for extension in extensions):
            raise ConfigError(
                f"{' and '.join(provider for provider, _ in offers)} each define {name!r} in {self._group}\n"
                f"  Rename one, or drop that plugin: uninstall it, or remove it from --plugin and {VARIABLE}."
            )
        return extensions[0]

    def is_own(self, name: str) -> bool:
        """Return whether a name belongs to weft rather than to a plugin."""
        return name in self._own

    def working(self) -> dict[str, _T]:
        """Return all usable extensions by name; report broken plugins on standard error."""
        extensions: dict[str, _T] = {}
        for name in self:
            try:
                extensions[name] = self[name]
            except ConfigError as broken:
                if self.is_own(name):  # a plugin uses the same name
                    raise
                _leave_out(broken)
        return extensions

    def _load_offer(self, name: str, provider: str, offered: Any) -> _T:
        if id(offered) not in self._loaded:
            extension = offered
            if isinstance(offered, str):
                extension = _load(f"{provider}: {self._group} {name} = {offered}", offered)
            if isinstance(extension, type):
                extension = _make(f"{provider}: {self._group} {name}", extension)
            if not self._fits(name, extension):
                raise ConfigError(f"{provider}: {self._group} {name} is {extension!r}, but must be {self._rule}")
            self._loaded[id(offered)] = extension
        return self._loaded[id(offered)]


def use(plugin: str) -> None:
    """Add a plugin, a file or a module, to this process and its child processes."""
    file = Path(plugin if plugin.endswith(".py") else f"{plugin}.py")
    chosen = str(file.resolve()) if file.is_file() else plugin
    _entry_points(chosen)  # import at once, so that the command reports errors
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = f"{before}{os.pathsep}{chosen}" if before else chosen


def _offers(group: str) -> dict[str, list[_Offer]]:
    """Return the offers of all plugins for a group, by name."""
    offers: dict[str, list[_Offer]] = {}
    for provider, name, offered in _installed(group):
        offers.setdefault(name, []).append((provider, offered))
    for plugin in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        try:
            points = _entry_points(plugin).get(group, {})
        except ConfigError as broken:
            _leave_out(broken)
            continue
        for name, offered in points.items():
            offers.setdefault(name, []).append((Path(plugin).name, offered))
    return offers


@cache
def _report(problem: str) -> None:
    print(f"weft: {problem}; ignored", file=sys.stderr)


def _leave_out(broken: ConfigError) -> None:
    """Report a plugin that cannot be used, once per process."""
    _report(str(broken).splitlines()[0])


@cache
def _installed(group: str) -> list[tuple[str, str, str]]:
    """Return provider, name and module:object of the installed entry points.

    Reading the metadata files takes 1 ms; `importlib.metadata` alone takes 70 ms.
    """
    lists = (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt"))
    if not any(f"[{group}]".encode() in file.read_bytes() for file in lists):
        return []
    from importlib.metadata import entry_points

    points = entry_points(group=group)
    return [
        (f"{point.dist.name} {point.dist.version}" if point.dist else point.module, point.name, point.value)
        for point in points
    ]


@cache
def _entry_points(plugin: str) -> dict[str, dict[str, Any]]:
    """Return the ENTRY_POINTS of a file or module."""
    module, name = _load(f"plugin {plugin}", plugin), "ENTRY_POINTS"
    points = getattr(module, name, None)
    if not isinstance(points, dict) or not all(isinstance(group, dict) for group in points.values()):
        raise ConfigError(
            f'plugin {plugin} must define {name} = {{"weft.topologies": {{"ring": ring}}}}, not {points!r}'
        )
    for group in points:
        if group not in GROUPS:
            raise UnknownName(f"extension point (in {name} of plugin {plugin})", group, GROUPS)
    return points


def _load(what: str, place: str) -> Any:
    """Return the object at module:object, a module, or the module in a Python file."""
    if place.endswith(".py") and not Path(place).is_file():
        raise ConfigError(f"{what}: no such file")
    try:
        if place.endswith(".py"):
            return _run_file(Path(place))
        name, _, attribute = place.partition(":")
        return getattr(import_module(name), attribute) if attribute else import_module(name)
    except ConfigError:
        raise
    except Exception as error:  # a plugin may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name == place:
            raise ConfigError(f"{what}: neither a file {place}.py nor a module that Python can import") from None
        raise ConfigError(
            f"{what} cannot be imported: {type(error).__name__}: {error}\n"
            f"  Fix the plugin, install what it needs, or drop it from --plugin and {VARIABLE}."
        ) from error


def _make(what: str, kind: type) -> Any:
    """Return an object of a plugin's class."""
    try:
        return kind()
    except Exception as error:
        raise ConfigError(f"{what}: {kind.__name__}() failed: {type(error).__name__}: {error}") from error


def _run_file(file: Path) -> Any:
    """Import a file with its folder on the path, so that it can import modules beside it."""
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    module = import_module(file.stem)
    if Path(getattr(module, "__file__", None) or "").resolve() != file.resolve():
        raise ConfigError(f"plugin {file}: another module is already named {file.stem}; rename the file")
    return module
