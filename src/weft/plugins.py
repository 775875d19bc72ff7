"""Extension points: where others add a topology, a routing engine, a file format, and where weft's own stand too.

    [project.entry-points."weft.topologies"]              in pyproject.toml of a package that is installed
    ring = "acme.fabrics:ring"

    ENTRY_POINTS = {"weft.topologies": {"ring": ring}}    in a file: weft --plugin ring.py, or WEFT_PLUGINS=ring.py

A door knows all names, and imports the thing behind one when somebody asks for it. A plugin that cannot be imported, or
is not what it should be, is an error for a command that names it; lists leave it out and say so on standard error.
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
_Offer = tuple[str, Any]  # who, and the thing or where it is


class Door(Mapping[str, _T]):
    """Things of one kind by name, those of plugins behind weft's own.

    `own` has things, or where they are, as an entry point says it: module:object. Of a class one object is made.
    `rule` says what such a thing is, in words; `fits` whether one is, given its name.
    """

    def __init__(self, group: str, own: Mapping[str, _T | str], rule: str, fits: Callable[[str, Any], bool]) -> None:
        self._group, self._own, self._rule, self._fits = group, own, rule, fits
        self._found: dict[int, _T] = {}  # by the id of what was offered, which is kept

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
        things = [self._thing(name, *offer) for offer in offers]
        if any(thing is not things[0] for thing in things):
            raise ConfigError(
                f"{' and '.join(who for who, _ in offers)} each have a {name!r} of {self._group}: names must differ\n"
                f"  Rename one, or go without that plugin: uninstall it, or leave it out of --plugin and {VARIABLE}."
            )
        return things[0]

    def is_own(self, name: str) -> bool:
        """Return whether it belongs to weft rather than to a plugin."""
        return name in self._own

    def working(self) -> dict[str, _T]:
        """Return all that can be used, by name; what plugins have broken is left out, with a line on standard error."""
        things: dict[str, _T] = {}
        for name in self:
            try:
                things[name] = self[name]
            except ConfigError as broken:
                if self.is_own(name):  # a plugin took the name
                    raise
                _leave_out(broken)
        return things

    def _thing(self, name: str, who: str, offered: Any) -> _T:
        if id(offered) not in self._found:
            thing = offered
            if isinstance(offered, str):
                thing = _load(f"{who}: {self._group} {name} = {offered}", offered)
            if isinstance(thing, type):
                thing = _make(f"{who}: {self._group} {name}", thing)
            if not self._fits(name, thing):
                raise ConfigError(f"{who}: {self._group} {name} is {thing!r}, and must be {self._rule}")
            self._found[id(offered)] = thing
        return self._found[id(offered)]


def use(plugin: str) -> None:
    """Add a plugin, a file or a module, to this process and all that it starts."""
    file = Path(plugin if plugin.endswith(".py") else f"{plugin}.py")
    chosen = str(file.resolve()) if file.is_file() else plugin
    _entry_points(chosen)  # at once: who names it wants to know
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = f"{before}{os.pathsep}{chosen}" if before else chosen


def _offers(group: str) -> dict[str, list[_Offer]]:
    """What plugins have for a group, by name."""
    found: dict[str, list[_Offer]] = {}
    for who, name, offered in _installed(group):
        found.setdefault(name, []).append((who, offered))
    for plugin in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        try:
            points = _entry_points(plugin).get(group, {})
        except ConfigError as broken:
            _leave_out(broken)
            continue
        for name, offered in points.items():
            found.setdefault(name, []).append((Path(plugin).name, offered))
    return found


@cache
def _report(what: str) -> None:
    print(f"weft: {what}; left out", file=sys.stderr)


def _leave_out(broken: ConfigError) -> None:
    """Report a plugin that cannot be used, once."""
    _report(str(broken).splitlines()[0])


@cache
def _installed(group: str) -> list[tuple[str, str, str]]:
    """Who, name, and where the thing is. To look at the files first takes 1 ms; to ask Python, 70."""
    lists = (file for folder in sys.path for file in Path(folder).glob("*-info/entry_points.txt"))
    if not any(f"[{group}]".encode() in file.read_bytes() for file in lists):
        return []
    from importlib.metadata import entry_points

    points = entry_points(group=group)
    return [(f"{one.dist.name} {one.dist.version}" if one.dist else one.module, one.name, one.value) for one in points]


@cache
def _entry_points(plugin: str) -> dict[str, dict[str, Any]]:
    """ENTRY_POINTS of a file or module."""
    module, name = _load(f"plugin {plugin}", plugin), "ENTRY_POINTS"
    points = getattr(module, name, None)
    if not isinstance(points, dict) or not all(isinstance(one, dict) for one in points.values()):
        raise ConfigError(
            f'plugin {plugin} must say what it adds: {name} = {{"weft.topologies": {{"ring": ring}}}}, not {points!r}'
        )
    for group in points:
        if group not in GROUPS:
            raise UnknownName(f"door for {name} of plugin {plugin}:", group, GROUPS)
    return points


def _load(what: str, place: str) -> Any:
    """The thing at module:object, a module, or a file of Python."""
    if place.endswith(".py") and not Path(place).is_file():
        raise ConfigError(f"{what}: no such file")
    try:
        if place.endswith(".py"):
            return _run_file(Path(place))
        name, _, attribute = place.partition(":")
        return getattr(import_module(name), attribute) if attribute else import_module(name)
    except ConfigError:
        raise
    except Exception as error:  # whatever somebody else's code does wrong
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
    """Import a file, which may import what stands beside it."""
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    module = import_module(file.stem)
    if Path(getattr(module, "__file__", None) or "").resolve() != file.resolve():
        raise ConfigError(f"plugin {file}: there is a module {file.stem} already, and it is another: rename the file")
    return module
