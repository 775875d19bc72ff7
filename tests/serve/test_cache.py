"""Caches of the service: bounded, and valid only for the objects that they were computed from."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import weft
from weft.serve.cache import ObjectCache

PACKAGES = ("lab", "mad", "monitor", "serve", "sm", "tenants", "twin")


def test_a_value_is_computed_once_for_the_same_objects() -> None:
    cache: ObjectCache[int] = ObjectCache(8)
    first, second = object(), object()
    assert cache.get("a", (first, second), lambda: 1) == 1
    assert cache.get("a", (first, second), lambda: 2) == 1
    assert cache.get("b", (first, second), lambda: 3) == 3
    assert cache.get("a", (first, object()), lambda: 4) == 4


def test_the_oldest_value_is_dropped() -> None:
    cache: ObjectCache[int] = ObjectCache(3)
    objects = (object(),)
    for number in range(100):
        cache.get(number, objects, lambda number=number: number)  # type: ignore[misc]
    assert len(cache) == 3
    assert [cache.get(number, objects, lambda: -1) for number in (99, 98, 97, 0)] == [99, 98, 97, -1]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_of_a_running_service_has_a_cache_without_a_bound(package: str) -> None:
    """Neither an empty dict that functions fill, nor functools.cache of a function of anything but classes."""
    unbounded = []
    for path in sorted((Path(weft.__file__).parent / package).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            is_empty = isinstance(value, ast.Dict) and not value.keys
            is_cache = (
                isinstance(node, ast.FunctionDef)
                and any(ast.unparse(decorator).endswith("cache") for decorator in node.decorator_list)
                and any(not ast.unparse(arg.annotation or arg).startswith("type[") for arg in node.args.args)
            )
            if is_empty or is_cache:
                unbounded.append(f"{path}:{node.lineno}")
    assert unbounded == []
