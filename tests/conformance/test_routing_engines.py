from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from weft.routing import ENGINES
from weft.routing.engine import Options

_SPEC = importlib.util.spec_from_file_location("conformance_routing", Path(__file__).with_name("routing.py"))
assert _SPEC is not None
suite = importlib.util.module_from_spec(_SPEC)
assert _SPEC.loader is not None
_SPEC.loader.exec_module(suite)

SERVES = {
    "min-hop": lambda spec: True,
    "up-down": lambda spec: True,
    "dfsssp": lambda spec: True,
    "fat-tree": lambda spec: spec.startswith(("fat-tree", "superpod", "dragonfly+")),
    "dimension-order": lambda spec: spec.startswith(("torus", "mesh", "hyperx", "star")),
    "dragonfly": lambda spec: spec.startswith("dragonfly"),
}


@pytest.mark.parametrize("lmc", [0, 1])
@pytest.mark.parametrize("spec", suite.FABRICS)
@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_routes_what_it_should_and_says_why_it_cannot(name, spec, lmc):
    routed = suite.check_routing_engine(ENGINES[name], spec, Options(lmc=lmc), may_deadlock=name == "min-hop")
    if SERVES[name](spec):
        assert routed, f"{name} should serve {spec}"
