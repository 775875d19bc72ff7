"""Small rules of layouts, faults and traces: limits, ties and defaults."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
from tests.training.traces.made import compute, talk, trace

from weft.errors import ConfigError, UnknownName
from weft.training.failures import parse_fault
from weft.training.parallel import cuts
from weft.training.scaling import Curve
from weft.training.traces import kineto, observer
from weft.training.traces.chakra_file import _attribute
from weft.training.traces.link import link
from weft.training.traces.protobuf import Broken, real, zigzag
from weft.training.traces.pytorch import size_bytes
from weft.training.traces.together import NONE, Wait, _latest


@pytest.mark.parametrize(
    ("layers", "parts", "divides"),
    [
        (126, 16, True),
        (126, 128, True),
        (61, 8, True),
        (60, 8, False),  # four are missing
        (2, 4, True),
        (1, 4, False),  # three are missing, and the first and last part have only two
        (1, 1, True),
    ],
)
def test_layers_divide_with_up_to_three_fewer_in_the_first_and_last_part(layers, parts, divides):
    assert cuts(layers, parts) == divides


@pytest.mark.parametrize("text", ["slow:leaf1/3", "slow:leaf1/3=", "slow:=1xEDR"])
def test_a_slow_link_needs_a_port_and_a_rate(text):
    with pytest.raises(ConfigError, match="lacks a port or a rate: write slow:"):
        parse_fault(text)
    fault = parse_fault("slow:leaf1/3=1xEDR")
    assert (fault.kind, fault.where, fault.label) == ("slow", "leaf1/3", "1xEDR")


def test_efficiency_is_relative_to_the_first_run():
    runs = [
        SimpleNamespace(site=SimpleNamespace(gpus=gpus), step=SimpleNamespace(tokens_per_s=tokens_per_s))
        for gpus, tokens_per_s in ((8, 80.0), (16, 120.0))
    ]
    curve = Curve(runs=tuple(runs))
    assert [curve.efficiency(run) for run in runs] == [1.0, 0.75]


def test_times_and_sizes_of_a_trace_may_be_as_large_as_its_limits():
    link(trace([compute(1, 10**15), compute(2, 0), talk(3, 1 << 42), talk(4, 0)]))
    for node in (compute(7, 10**15 + 1), talk(7, (1 << 42) + 1), talk(7, -1)):
        with pytest.raises(ConfigError, match="node 7"):
            link(trace([node]))


@pytest.mark.parametrize(("stride", "ranks"), [(0, (4, 5, 6)), (1, (4, 5, 6)), (2, (4, 6, 8))])
def test_ranks_of_a_group_follow_its_stride_and_a_stride_of_0_counts_as_1(stride, ranks):
    file = SimpleNamespace(members={"other": (0, 1)})
    words = {"Global rank start": 4, "Global rank stride": stride, "Group size": 3, "Process Group Name": "mine"}
    assert kineto._File.group(file, words) == ranks
    has = {"pg_name": "mine", "global_rank_start": 4, "global_rank_stride": stride, "pg_size": 3}
    assert observer._Host._members(file, has) == ranks
    assert observer._Host._members(file, has | {"pg_name": "other"}) == (0, 1)


def test_numbers_of_protobuf():
    assert [real(struct.pack(form, 0.5)) for form in ("<d", "<f")] == [0.5, 0.5]
    with pytest.raises(Broken, match="a real number of 5 bytes"):
        real(bytes(5))
    assert [zigzag(value) for value in (0, 1, 2, 3)] == [0, -1, 1, -2]


@pytest.mark.parametrize(
    ("dtype", "each_bytes"), [("Bool", 1), ("BFloat16", 2), ("Float8_e5m2", 1), ("UInt32", 4), ("ComplexDouble", 16)]
)
def test_the_size_of_a_tensor_is_that_of_the_larger_buffer(dtype, each_bytes):
    assert size_bytes(3, 5, dtype) == size_bytes(5, 3, dtype) == 5 * each_bytes
    with pytest.raises(UnknownName, match="dtype"):
        size_bytes(3, 5, "Floa")


def test_several_dependencies_are_one_with_the_messages_of_the_latest_delay():
    nothing = Wait(5, NONE, 0, ())
    assert _latest([]) == Wait(0, NONE, 0, ())
    assert _latest([nothing, Wait(7, NONE, 3, ())]) == Wait(7, NONE, 0, ())
    late, same, other = Wait(1, 90, 10, (4, 2)), Wait(2, 80, 10, (2, 9)), Wait(8, 70, 20, (6,))
    assert _latest([nothing, late, same, other]) == Wait(8, 90, 10, (4, 2, 9))


@pytest.mark.parametrize(
    ("value", "written"),
    [(300, b"\x68\xac\x02"), (True, b"\xd8\x01\x01"), ("ring", b"\xea\x01\x04ring")],  # uint64, bool and string
)
def test_attributes_of_chakra_have_the_fields_of_its_schema(value, written):
    assert _attribute("comm", value) == b"\x0a\x04comm" + written
