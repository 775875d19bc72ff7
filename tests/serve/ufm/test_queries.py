"""Filters, pages, numbered entries and names of counters of UFM's interface; no service runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from weft.errors import ConfigError, UnknownName
from weft.serve.ufm import queries
from weft.serve.ufm.counters import COUNTERS, find_counter, is_rate
from weft.serve.ufm.health import _details
from weft.serve.ufm.jobs import Journal, stamp
from weft.serve.ufm.reports import _same_descriptions
from weft.serve.ufm.shapes import NONE
from weft.serve.ufm.telemetry import read_ago


def port(name: str, **fields: object) -> SimpleNamespace:
    usual = {"description": "Computer IB Port", "system_id": "s1", "system_name": "h1", "logical_state": "Active"}
    more = {"physical_state": "Link Up", "number": 1, "high_ber_severity": NONE, "peer_node_name": "leaf1"}
    return SimpleNamespace(name=name, **(usual | more | fields))


PORTS = [
    port("up"),
    port("initialised", logical_state="Initialize"),
    port("disabled", physical_state="Disabled"),
    port("inner", number=0, description="Switch IB Port", system_id="s2", system_name="leaf1"),
    port("bad", high_ber_severity="Error"),
]
PICTURE = SimpleNamespace(
    ports=PORTS,
    of_system=lambda name: [each for each in PORTS if name in (each.system_id, each.system_name)],
    of_kind=lambda kind: [each for each in PORTS if each.description.lower() == f"{kind.lower()} ib port"],
    systems=[
        SimpleNamespace(guid="s1", type="host", ip="10.0.0.1", model="Host", role="endpoint"),
        SimpleNamespace(guid="s2", type="switch", ip="0.0.0.0", model="QM9700", role="tor"),
    ],
    links=[
        SimpleNamespace(source_guid="s1", destination_guid="s2"),
        SimpleNamespace(source_guid="s3", destination_guid="s4"),
    ],
)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, "up initialised disabled inner bad"),
        ({"active": "true"}, "up disabled inner bad"),
        ({"active": "false"}, "up initialised disabled inner bad"),
        ({"show_disabled": "false"}, "up initialised inner bad"),
        ({"show_disabled": "true"}, "up initialised disabled inner bad"),
        ({"external": "true"}, "up initialised disabled bad"),
        ({"high_ber_only": "TRUE"}, "bad"),
        ({"high_ber_severity": "error"}, "bad"),
        ({"sys_type": "switch"}, "inner"),
        ({"system": "leaf1"}, "inner"),
        ({"system": "s1", "active": "true", "brief": "true"}, "up disabled bad"),
    ],
)
def test_ports_are_filtered_by_every_word_of_a_query(query, names):
    assert [each.name for each in queries.ports(PICTURE, query)] == names.split()


@pytest.mark.parametrize(
    ("query", "guids"),
    [
        ({}, "s1 s2"),
        ({"type": "SWITCH"}, "s2"),
        ({"ip": "10.0.0.1"}, "s1"),
        ({"model": "qm9700"}, "s2"),
        ({"role": "TOR"}, "s2"),
        ({"peer_name": "leaf1"}, "s1 s2"),
        ({"peer_name": "leaf2"}, ""),
        ({"ports": "true"}, "s1 s2"),
        ({"chassis": "false", "in_rack": "false"}, "s1 s2"),
        ({"in_rack": "true"}, ""),
    ],
)
def test_systems_are_filtered_by_every_word_of_a_query(query, guids):
    assert [each.guid for each in queries.systems(PICTURE, query)] == guids.split()


@pytest.mark.parametrize(("system", "n"), [("s1", 1), ("s2", 1), ("s5", 0)])
def test_links_are_those_of_a_system_at_either_end(system, n):
    assert len(queries.links(PICTURE, {"system": system})) == n


@pytest.mark.parametrize(
    ("query", "error"), [({"actve": "true"}, "unknown filter 'actve'"), ({"active": "yes"}, "'yes'")]
)
def test_unknown_filters_and_values_are_refused(query, error):
    with pytest.raises(ConfigError, match=error):
        queries.ports(PICTURE, query)


def test_pages_count_from_one():
    items = list(range(10))
    pages = [
        {},
        {"rpp": "4"},
        {"rpp": "4", "page_number": "3"},
        {"rpp": "1000000000"},
        {"rpp": "4", "page_number": "4"},
    ]
    assert [list(queries.page(items, query)) for query in pages] == [items, items[:4], items[8:], items, []]
    assert [queries.is_paged(query) for query in pages] == [False, True, True, True, True]
    for word in ("0", "-1", "x", "1000000001", "٣", "10000000000"):
        with pytest.raises(ConfigError, match="rpp must be from 1 to 1000000000"):
            queries.page(items, {"rpp": word})


def test_lists_of_names_and_switches_of_a_query():
    assert queries.named("port", "a, b", {"a": 1, "b": 2}.get) == [1, 2]
    with pytest.raises(UnknownName, match="no port 'c'"):
        queries.named("port", "a,c", {"a": 1}.get)
    assert [queries.is_set(query, "x") for query in ({}, {"x": "true"}, {"x": "false"})] == [False, True, False]


def test_the_newest_thousand_entries_are_kept():
    journal = Journal("job")
    assert [journal.add({"n": n}) for n in range(1001)] == list(range(1, 1002))
    assert (len(journal.all()), journal.find("2"), journal.find("1001")[1]) == (1000, (2, {"n": 1}), {"n": 1000})
    journal.remove("2")
    for number in ("1", "2", "x", "٣", "1" * 20):
        with pytest.raises(UnknownName, match="no job"):
            journal.find(number)
    assert stamp(0) == "1970-01-01 00:00:00"


def test_a_counter_has_three_names_and_rates_a_suffix():
    for counter in COUNTERS:
        names = (
            counter.telemetry,
            counter.session,
            counter.debug,
            f"{counter.telemetry}_Rate",
            f"{counter.session}Rate",
        )
        assert {find_counter(name) for name in names} == {counter}
        assert [is_rate(name) for name in names] == [False] * 3 + [True] * 2
    assert find_counter("PortTXPackets").telemetry == "PortXmitPktsExtended"
    with pytest.raises(UnknownName, match="no counter 'PortXmit'"):
        find_counter("PortXmit")


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("-7", 7), ("-7s", 7), ("-7sec", 7), ("-7m", 420), ("-7min", 420), ("-2h", 7200), ("-2d", 172_800)],
)
def test_times_before_now_have_units(words, seconds):
    assert read_ago(words) == seconds
    with pytest.raises(ConfigError, match="such as -1h"):
        read_ago(words.removeprefix("-"))


def test_an_unhealthy_port_without_a_cable_has_no_peer():
    shown = _details(port("ab_3", dname="3", peer=NONE, peer_port_dname=NONE, peer_lid=None))
    assert [shown[f"Peer{name}"] for name in ("GUID", "PortNumber", "LID")] == [NONE, 0, "0"]


def test_adapters_with_the_same_description_are_reported_and_switches_are_not():
    kinds = {"h1 HCA-1": "HCA", "h2 HCA-1": "HCA", "MF0;leaf": "switch"}
    names = ["h1 HCA-1", "h1 HCA-1", "h2 HCA-1", "MF0;leaf", "MF0;leaf"]
    nodes = SimpleNamespace(description=names, kind=[kinds[name] for name in names])
    fabric = SimpleNamespace(picture=SimpleNamespace(subnet=SimpleNamespace(nodes=nodes)))
    assert list(_same_descriptions(fabric)) == ["h1 HCA-1: 2 nodes"]
