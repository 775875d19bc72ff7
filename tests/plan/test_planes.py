"""Plans of planes: boxes, cables, and sizes that one plane cannot reach."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.plan.plan import make_plan
from weft.plan.request import Request
from weft.plan.size import size


def test_boxes_with_a_chip_in_each_plane_cost_the_same_with_planes() -> None:
    one, four = (make_plan(size(Request(gpus=512, server="dgx-b300", planes=planes))) for planes in (1, 4))
    assert four.bill == one.bill
    assert four.size.spec == f"{one.size.spec},planes=4"


def test_planes_of_whole_switches_are_bought_one_by_one() -> None:
    """Two planes of 128 ports of 200 Gbit/s: twice the switches that one such plane has."""
    sized = size(Request(gpus=1024, planes=2))
    assert sized.switches == {"leaf": 2 * 16, "spine": 2 * 8}
    assert sized.cables == {"node_leaf": 2 * 1024, "leaf_spine": 2 * 1024}
    bill = make_plan(sized).bill
    assert {item.name: item.count for item in bill.items if item.kind in ("switch", "adapter")} == {
        "QM9700": 48,
        "ConnectX-7": 1024,
    }


@pytest.mark.parametrize("fabric", ["ndr", "roce-400"])
def test_planes_lift_the_limit_of_65536_gpus(fabric: str) -> None:
    with pytest.raises(ConfigError, match=r"take 65,536 GPUs, or --planes 2"):
        size(Request(gpus=131_072, fabric=fabric))


def test_planes_that_the_hardware_lacks_are_refused() -> None:
    with pytest.raises(ConfigError, match="planes=4 need ports of 1xNDR, and QM9700 has 64 × 4xNDR or 128 × 2xNDR"):
        size(Request(gpus=64, planes=4))
    with pytest.raises(ConfigError, match="--planes must be 1 or more, got 0"):
        Request(gpus=64, planes=0)


def test_breakout_joins_more_adapters_at_a_lower_rate() -> None:
    """1,024 adapters at half of NDR: half of the switches that whole ports need."""
    whole, split = size(Request(gpus=1024)), size(Request(gpus=1024, breakout=2))
    assert (whole.leaf, whole.spine) == (32, 16)
    assert (split.leaf, split.spine) == (16, 8)
    assert split.spec.endswith("breakout=2")
    assert {port.link.label for port in split.fabric.find_node("leaf1").ports if port.link} == {"2xNDR"}


def test_breakout_that_the_switch_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="breakout=4: QM9700 has 64 × 4xNDR or 128 × 2xNDR"):
        size(Request(gpus=64, breakout=4))


def test_eight_planes_of_an_adapter_and_eight_ports_of_a_cage_have_one_transceiver() -> None:
    """512 × 100G of a switch are 64 cages, and each adapter has one."""
    plan = make_plan(size(Request(servers=64, server="host+Thor-Ultra", switch="THU-64x800", planes=8)))
    assert (plan.bill.count("switch"), plan.bill.count("adapter"), plan.bill.count("fibre")) == (8, 64, 512)
    assert plan.bill.count("transceiver") == 64 + 512 // 8
