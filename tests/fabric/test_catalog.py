"""The catalog: every entry is sourced and consistent, names are found, and cables reach."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from weft.errors import ConfigError, UnknownName
from weft.fabric import catalog
from weft.fabric.kinds import Medium
from weft.fabric.rates import Technology, parse_label, speed, speeds
from weft.units import gbyte_s


@pytest.mark.parametrize("entry", catalog.entries(), ids=lambda entry: entry.name)
def test_every_entry_names_its_source_and_the_day_it_was_read(entry: catalog.Entry) -> None:
    assert len(entry.source) > 20
    assert datetime.date(2026, 1, 1) <= entry.date <= datetime.date(2027, 12, 31)
    assert entry.summary


def test_names_are_unique_over_all_kinds_and_hold_no_blanks() -> None:
    names = [entry.name.lower() for entry in catalog.entries()]
    assert len(set(names)) == len(names)
    assert not [name for name in names if " " in name or "," in name or "=" in name]


def test_every_entry_is_found_by_its_name_in_any_case() -> None:
    for entry in catalog.entries():
        assert catalog.find(entry.name.upper()) is entry
        assert catalog.find(entry.name.lower()) is entry


@pytest.mark.parametrize(
    ("name", "ports", "rate_gbit_s", "aggregate_tbit_s"),
    [("QM9700", 64, 400, 51.2), ("QM8700", 40, 200, 16), ("Q3400", 144, 800, None), ("SB7800", 36, 100, 7.2)],
)
def test_switches_have_their_published_ports_and_capacity(
    name: str, ports: int, rate_gbit_s: float, aggregate_tbit_s: float | None
) -> None:
    switch = catalog.switch(name)
    assert (switch.ports, switch.rate_gbit_s, switch.line[1]) == (ports, rate_gbit_s, 4)
    assert switch.technology is Technology.INFINIBAND
    if aggregate_tbit_s is not None:
        assert 2 * ports * rate_gbit_s / 1000 == pytest.approx(aggregate_tbit_s)  # both directions


def test_cages_hold_whole_numbers_of_ports() -> None:
    for switch in catalog.switches():
        assert switch.ports % switch.cages == 0, switch.name


def test_an_adapter_never_waits_for_the_slot_of_a_single_port_card() -> None:
    """PCIe of the card carries its one port at line rate: the network, not the slot, is the bottleneck."""
    for adapter in catalog.adapters():
        if adapter.ports == 1:
            line, width = parse_label(adapter.pcie)
            assert line.rate_gbit_s(width) >= adapter.rate_gbit_s, adapter.name


def test_ports_of_a_card_share_its_lanes() -> None:
    assert catalog.adapter("ConnectX-7").pcie_per_port == "16xPCIe5"
    assert catalog.adapter("ConnectX-7-2P").pcie_per_port == "8xPCIe5"


@pytest.mark.parametrize(
    ("name", "gbyte_s_both_ways"),
    [("A100", 600), ("H100", 900), ("H200", 900), ("GB200", 1800), ("B300", 1800)],
)
def test_gpus_have_their_published_nvlink_bandwidth(name: str, gbyte_s_both_ways: float) -> None:
    gpu = catalog.gpu(name)
    line, width = parse_label(gpu.nvlink)
    assert 2 * gbyte_s(gpu.nvlinks * line.rate_gbit_s(width)) == pytest.approx(gbyte_s_both_ways)


def test_fp8_peak_is_twice_bf16() -> None:
    for gpu in catalog.gpus():
        if "fp8" in gpu.peak_tflop_s:
            assert gpu.peak_tflop_s["fp8"] == pytest.approx(2 * gpu.peak_tflop_s["bf16"], rel=0.001)


@pytest.mark.parametrize(
    ("vendor_id", "device_id", "name"),
    [
        (0x2C9, 0xD2F0, "QM8700"),
        (0x2C9, 0xD2F2, "QM9700"),
        (0x2C9, 0xD2F4, "Q3400"),
        (0x2C9, 0xCF08, "SB7800"),
        (0x2C9, 0xC738, "SX6036"),
        (0x2C9, 0x1017, "ConnectX-5"),
        (0x2C9, 0x101B, "ConnectX-6"),
        (0x2C9, 0x1021, "ConnectX-7"),
        (0x2C9, 0x1023, "ConnectX-8"),
    ],
)
def test_a_node_of_a_real_dump_is_named_by_its_device_id(vendor_id: int, device_id: int, name: str) -> None:
    result = catalog.by_device_id(vendor_id, device_id)
    assert result is not None
    assert result.name == name


def test_an_unknown_device_id_has_no_model() -> None:
    assert catalog.by_device_id(0x2C9, 0xCF09) is None  # a SHARP aggregation node
    assert catalog.by_device_id(0, 0) is None
    assert catalog.by_device_id(0x1234, 0xD2F2) is None


def test_unknown_names_suggest_similar_ones() -> None:
    with pytest.raises(UnknownName, match=r"there is no switch in the catalog 'QM9800'; did you mean .*QM9700"):
        catalog.switch("QM9800")
    with pytest.raises(UnknownName, match="did you mean dgx-h100"):
        catalog.server("dgxh100")
    with pytest.raises(UnknownName, match=r"did you mean .*ConnectX-7"):
        catalog.find("ConnectX7")
    with pytest.raises(UnknownName):
        catalog.adapter("QM9700")  # a switch is no adapter
    with pytest.raises(UnknownName):
        catalog.gpu("")


def test_entries_refuse_fields_they_do_not_know() -> None:
    fields = msgspec.to_builtins(catalog.switch("QM9700"))
    assert msgspec.convert(fields, catalog.Switch) == catalog.switch("QM9700")
    with pytest.raises(msgspec.ValidationError, match="colour"):
        msgspec.convert({**fields, "colour": "black"}, catalog.Switch)


@pytest.mark.parametrize(
    ("name", "length_m", "medium"),
    [
        ("NDR", 0, Medium.DAC),
        ("NDR", 3, Medium.DAC),
        ("4xNDR", 3.5, Medium.ACC),
        ("NDR", 30, Medium.TRANSCEIVER),
        ("HDR", 2, Medium.DAC),
        ("2xHDR", 2.5, Medium.AOC),
        ("QDR", 50, Medium.AOC),
        ("400GbE", 2, Medium.DAC),
        ("OPA-100", 20, Medium.AOC),
    ],
)
def test_the_cheapest_medium_that_reaches_is_chosen(name: str, length_m: float, medium: Medium) -> None:
    cable = catalog.cable_for(name, length_m)
    assert cable.medium is medium
    assert length_m <= cable.reach_m


def test_copper_between_switches_is_shorter_than_to_adapters() -> None:
    assert catalog.cable_for("NDR", 2, "switches").name == "NDR-DAC"
    assert catalog.cable_for("NDR", 2.5, "switches").medium is Medium.ACC
    assert catalog.cable_for("NDR", 2.5, "adapters").name == "NDR-DAC-split"
    assert catalog.cable_for("HDR", 2, "switches") == catalog.cable_for("HDR", 2, "adapters")


def test_the_transceiver_of_shorter_reach_is_chosen() -> None:
    assert [catalog.cable_for("NDR", m).reach_m for m in (50, 51, 101, 501)] == [50, 100, 500, 2000]


def test_no_cable_reaches_that_far_and_the_message_says_how_far_they_do() -> None:
    with pytest.raises(ConfigError, match="no NDR cable is 3000 m long: the longest, NDR-FR4, reaches 2000 m"):
        catalog.cable_for("NDR", 3000)
    with pytest.raises(ConfigError, match=r"no cable for GDR, only for .*NDR"):
        catalog.cable_for("GDR", 1)
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="length must be 0 m or more"):
            catalog.cable_for("NDR", wrong)


def test_every_switch_can_be_cabled_across_a_hall() -> None:
    for switch in catalog.switches():
        assert catalog.cable_for(switch.label, 30)


def test_every_cable_is_for_speeds_that_exist_and_is_slower_than_light() -> None:
    light_ns_per_m = 1 / 0.299792458
    for cable in catalog.cables():
        for name in cable.speeds:
            assert speed(name) in speeds()
        assert sorted(set(cable.lengths_m)) == list(cable.lengths_m)
        assert cable.lengths_m[0] > 0
        assert light_ns_per_m < cable.delay_ns_per_m < 2 * light_ns_per_m, cable.name


@pytest.mark.parametrize("template", catalog.servers(), ids=lambda template: template.name)
def test_server_templates_are_trees_of_devices_that_they_have(template: catalog.Server) -> None:
    """Every device hangs below exactly one other, the CPUs below none, and parents are listed before children."""
    devices = {f"gpu{i}" for i in range(template.gpus)} | {f"pcie{i}" for i in range(template.pcie_switches)}
    devices |= {*template.compute, *template.storage}
    cpus = {f"cpu{i}" for i in range(template.cpus)}
    below = [device for children in template.pcie_tree.values() for device in children]
    assert sorted(below) == sorted(devices if cpus else [])
    observed = set(cpus)
    for above, children in template.pcie_tree.items():
        assert above in observed
        observed |= set(children)
    nvswitches = {f"nvswitch{i}" for i in range(len(template.nvlink_spread))}
    assert set(template.bus_id) <= devices | nvswitches
    assert len(set(template.bus_id.values())) == len(template.bus_id)


@pytest.mark.parametrize(
    "name", ["dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300", "hgx-h100", "hgx-h200", "hgx-b200"]
)
def test_a_dgx_spreads_all_nvlinks_and_has_a_rail_for_each_gpu(name: str) -> None:
    template = catalog.server(name)
    assert template.gpus == template.rails == 8
    assert sum(template.nvlink_spread) == catalog.gpu(template.gpu).nvlinks
    for children in template.pcie_tree.values():
        gpus = [child for child in children if child.startswith("gpu")]
        if gpus:  # beside each GPU hangs the adapter of its rail
            assert {template.compute[int(gpu.removeprefix("gpu"))] for gpu in gpus} <= set(children)


def test_four_adapters_of_a_board_serve_the_two_gpus_beside_each() -> None:
    box = catalog.server("hgx-h100-4nic")
    assert (box.rails, box.ports_per_cage, box.spare) == (4, 1, ())
    for children in (box.pcie_tree[f"pcie{switch}"] for switch in range(4)):
        assert [child.rstrip("0123456789") for child in children] == ["gpu", "gpu", "mlx5_"]


@pytest.mark.parametrize(("name", "cards"), [("gb200-nvl72", 36), ("gb300-nvl72", 18)])
def test_a_rack_is_its_trays_numbered_through_and_one_nvlink_domain(name: str, cards: int) -> None:
    """Eighteen times 4 GPUs, 2 processors and 4 adapters; 18 NVSwitches, on each of which every GPU has a link."""
    rack = catalog.server(name)
    assert (rack.trays, rack.gpus, rack.cpus, rack.rails) == (18, 72, 36, 72)
    assert rack.nvlink_spread == (1,) * catalog.gpu(rack.gpu).nvlinks
    second = f"mlx5_{4 + 2 * cards // 18}"  # the first adapter of the second tray
    assert rack.compute[:5] == ("mlx5_0", "mlx5_1", "mlx5_3", "mlx5_4", second)
    assert rack.sold_with == {rack.compute_adapter: 72, "BlueField-3": cards}
    above = {device: parent for parent, children in rack.pcie_tree.items() for device in children}
    for gpu, adapter in enumerate(rack.compute):  # below one processor, or below one switch
        assert above[f"gpu{gpu}"] == above[adapter]
    half = rack.cabled(36)
    assert (half.trays, half.compute[:3]) == (18, ("mlx5_0", "mlx5_3", second))
    assert (rack.cabled(8).trays, rack.cabled(8).is_rack) == (1, True)


@pytest.mark.parametrize(
    ("name", "height_u"),
    [("dgx-a100", 6), ("dgx-h100", 8), ("dgx-b200", 10), ("QM8700", 1), ("QM9700", 1), ("Q3400", 4), ("SN5600", 2)],
)
def test_rack_heights_match_the_manuals(name: str, height_u: int) -> None:
    entry = catalog.find(name)
    assert isinstance(entry, catalog.Switch | catalog.Server)
    assert entry.height_u == height_u


def test_a_server_with_fewer_rails_has_the_rest_of_its_adapters_without_a_cable():
    """Each pair of GPUs has one adapter, of the requested card; there is only one such name."""
    box = catalog.server("DGX-H100+4rails+connectx-8")
    assert box.name == "dgx-h100+ConnectX-8+4rails"
    assert (box.compute, box.rails) == (("mlx5_0", "mlx5_4", "mlx5_6", "mlx5_10"), 4)
    assert box.spare == ("mlx5_3", "mlx5_5", "mlx5_9", "mlx5_11")
    assert box.cabled(8).equipped(catalog.adapter("ConnectX-7")) == catalog.server("dgx-h100")
    with pytest.raises(ConfigError, match="dgx-h100 has 8 compute adapters: rails are 1 to 8, not 9"):
        catalog.server("dgx-h100+9rails")


def test_the_own_card_of_a_server_is_cabled_with_all_ports_of_its_ethernet_mode():
    box = catalog.server("dgx-b300").equipped(catalog.adapter("ConnectX-8-EN"))
    assert (box.rails, box.ports_per_cage, box.name) == (16, 2, "dgx-b300+ConnectX-8-EN")
    assert box.compute[:4] == ("mlx5_4", "mlx5_4_p2", "mlx5_7", "mlx5_7_p2")
    assert box.pcie_tree["pcie0"] == ("gpu0", "mlx5_4", "mlx5_4_p2")
    assert {box.cages[name] for name in ("mlx5_4", "mlx5_4_p2")} == {"mlx5_4"}
    half = box.cabled(8)
    assert (half.rails, half.spare) == (8, ("mlx5_7", "mlx5_7_p2", "mlx5_9", "mlx5_9_p2", *half.spare[4:]))
    assert catalog.server(half.name) == half
    assert box.equipped(catalog.adapter("ConnectX-8")) == catalog.server("dgx-b300")
    with pytest.raises(ConfigError, match="rails are 1 to 16, 2 for each card, not 3"):
        box.cabled(3)
    assert catalog.server("dgx-h100").equipped(catalog.adapter("ConnectX-8-EN")).rails == 8  # another card
    assert catalog.server("dgx-h100").equipped(catalog.adapter("ConnectX-8-SuperNIC")).rails == 16


def test_a_server_keeps_its_own_card_where_that_speaks_the_fabric_s_speed():
    b300 = catalog.server("dgx-b300")
    cards = {name: b300.card_for(catalog.interconnect(name)).name for name in ("roce-400", "xdr", "ndr", "efa-400")}
    assert cards == {"roce-400": "ConnectX-8-EN", "xdr": "ConnectX-8", "ndr": "ConnectX-7", "efa-400": "EFA-4x100"}


def test_a_cage_of_a_server_with_two_ports_takes_twin_plugs_and_transceivers() -> None:
    fit = {cable.name for cable in catalog.cables() if cable.fits("twin adapters")}
    assert {"NDR-DAC", "NDR-ACC", "NDR-SR4", "400GbE-DR4-100m", "HDR-DAC"} <= fit
    assert not {"NDR-DAC-split", "NDR-ACC-split", "400GbE-DAC", "400GbE-AOC", "400GbE-DR4"} & fit


def test_unverified_cable_entries_have_a_note() -> None:
    read = {"NDR-DAC", "NDR-DAC-split"}  # all of it stands in the vendor's own list
    for cable in catalog.cables():
        output = "recalled" in cable.note or "weak" in cable.note
        assert output != (cable.name in read), cable.name


def test_plug_power_is_that_of_the_most_demanding_optics() -> None:
    assert [catalog.plug_power_w(speed) for speed in ("NDR", "4xHDR", "400GbE", "EDR")] == [9, 6, 12, None]


def test_ethernet_with_adaptive_paths_has_cards_of_its_own_in_every_server() -> None:
    names = ("spectrum-x-400", "spectrum-x-800", "uec-400", "uec-800")
    cards = [catalog.server("dgx-h100").card_for(catalog.interconnect(name)).name for name in names]
    assert cards == ["BlueField-3-SuperNIC", "ConnectX-8-SuperNIC", "Pollara-400", "Thor-Ultra"]
    assert all(catalog.interconnect(name).headlines_only for name in names)
