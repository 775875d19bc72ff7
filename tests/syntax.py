"""A walk over syntax trees in a third of the time of `ast.walk`, for tests that read all sources."""

from __future__ import annotations

import ast
import re

# Names, numbers and aliases of imports, and nodes without information of their own: contexts and operators.
_LEAVES = frozenset(
    re.findall(
        r"\w+",
        "arg asname attr conversion ctx id is_async kind kwd_attrs level module name names op ops rest simple tag "
        "type_comment type_ignores",
    )
)


class _Children(dict[type, tuple[str, ...]]):
    """The fields that hold other nodes, by kind of node."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        fields = () if kind is ast.Constant else getattr(kind, "_fields", ())
        self[kind] = tuple(field for field in fields if field not in _LEAVES)
        return self[kind]


_CHILDREN = _Children()


def walk(tree: ast.AST, *, docstrings: bool = True) -> list[ast.AST | None]:
    """Return a tree's nodes, outermost first, without contexts, operators and aliases; None where a list has None."""
    nodes: list[ast.AST | None] = [tree]
    for node in nodes:
        if not docstrings and type(node) is ast.Expr and type(node.value) is ast.Constant:
            continue
        for field in _CHILDREN[type(node)]:
            child = getattr(node, field)
            if type(child) is list:
                nodes += child
            elif child is not None:
                nodes.append(child)
    return nodes
