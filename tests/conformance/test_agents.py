from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import weft
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.subnet import Subnet

_SPEC = importlib.util.spec_from_file_location("conformance_agents", Path(__file__).with_name("agents.py"))
assert _SPEC is not None
suite = importlib.util.module_from_spec(_SPEC)
assert _SPEC.loader is not None
sys.modules[_SPEC.name] = suite  # dataclasses look up their module
_SPEC.loader.exec_module(suite)


@pytest.mark.parametrize("host", ["h1", "leaf1"])
def test_the_agents_in_this_process_keep_to_the_suite(host):
    clock = ManualClock()
    subnet = Subnet(weft.load("fat-tree:hosts=8,radix=4"), clock=clock)
    devices = subnet.devices
    node = devices.fabric.node_index[host]
    carrier = LocalCarrier(subnet, devices.first[node] + (host == "h1"), sleep=clock.sleep)
    suite.check_agents(carrier)
