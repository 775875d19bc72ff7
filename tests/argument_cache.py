"""A cache of the arguments that cyclopts assembles for a command: without it, cyclopts does so for each command line.

Assembling takes half of the CPU time of a small command (50 ms for `weft train`), and the tests run thousands.
"""

from __future__ import annotations

import copy

from cyclopts import App, Argument, ArgumentCollection, Parameter

_assemble = App.assemble_argument_collection
# By the ids of a command and of its parents, from which it inherits. The objects are kept, so that ids stay unique.
_known: dict[tuple[int, ...], tuple[list[object], ArgumentCollection]] = {}


def install() -> None:
    """Make cyclopts assemble the arguments of a command once per process."""
    App.assemble_argument_collection = _recall  # type: ignore[method-assign]


def _recall(
    self: App, *, default_parameter: Parameter | None = None, parse_docstring: bool = False
) -> ArgumentCollection:
    """Return the arguments as `App.assemble_argument_collection` does, copied for the caller."""
    command = self.default_command
    if default_parameter is not None or command is None:
        return _assemble(self, default_parameter=default_parameter, parse_docstring=parse_docstring)
    parts = [parse_docstring, self, command, *(app for apps in self.app_stack.stack for app in apps)]
    key = tuple(map(id, parts))
    if key not in _known:
        _known[key] = parts, _assemble(self, parse_docstring=parse_docstring)
    return _fresh(_known[key][1])


def _fresh(template: ArgumentCollection) -> ArgumentCollection:
    """Copy arguments that have no values yet."""
    copies = {id(argument): copy.copy(argument) for argument in template}

    def of(argument: Argument) -> Argument:
        return copies[id(argument)]

    for argument in copies.values():
        argument.tokens = []
        argument.children = ArgumentCollection(map(of, argument.children))
    return ArgumentCollection(map(of, template))
