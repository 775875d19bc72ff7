"""Limits of numbers in a lab's file."""

from __future__ import annotations

import msgspec
import pytest

from weft.fabric.build import MAX_PORTS
from weft.fabric.files.lab import nodes
from weft.ids import Lid


@pytest.mark.parametrize(
    ("kind", "largest"), [(nodes._Ports, MAX_PORTS), (nodes._Lid, Lid.FIRST_MULTICAST - 1), (nodes._Lmc, 7)]
)
def test_ports_lids_and_lmcs_have_their_limits(kind, largest):
    assert [msgspec.convert(number, kind) for number in (0, int(largest))] == [0, largest]
    for number in (-1, int(largest) + 1):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(number, kind)
