from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from weft.sim.engines import ENGINES

_SPEC = importlib.util.spec_from_file_location("conformance_sim", Path(__file__).with_name("sim.py"))
assert _SPEC is not None
suite = importlib.util.module_from_spec(_SPEC)
assert _SPEC.loader is not None
_SPEC.loader.exec_module(suite)


@pytest.mark.parametrize("spec", suite.FABRICS)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_keeps_to_the_suite(engine, spec):
    suite.check_engine(ENGINES[engine], spec)
