from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError, UnknownName
from weft.fabric.spec import describe, load


@pytest.mark.parametrize(
    ("spec", "canonical"),
    [
        ("star:16", "star:hosts=16"),
        ("star:hosts=16,server=host", "star:hosts=16"),
        (" star: hosts = 16 , radix = 36 ", "star:hosts=16,radix=36"),
        ("fat-tree:radix=36,hosts=40", "fat-tree:hosts=40,radix=36"),
        ("fat-tree:40,oversubscription=1.0,radix=36", "fat-tree:hosts=40,radix=36"),
        ("fat-tree:40,oversubscription=1.5,radix=36", "fat-tree:hosts=40,oversubscription=1.5,radix=36"),
        ("torus:4x4", "torus:4x4"),
        ("torus:dims=4x4,hosts=2", "torus:4x4,hosts=2"),
        ("mesh:5", "mesh:5"),
    ],
)
def test_a_fabrics_spec_is_canonical(spec, canonical):
    assert load(spec).spec == canonical


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fattree:hosts=4", "no topology 'fattree'; did you mean fat-tree?"),
        ("fat-tre:oversubscription=1.5", "no topology 'fat-tre'"),
        ("", "no topology ''; there are dragonfly, dragonfly"),
        ("star:host=4", "no parameter of star 'host'; did you mean hosts"),
        ("star", "star needs hosts: servers"),
        ("star:", "star needs hosts: servers"),
        ("dragonfly:4,a=8", "dragonfly needs h: global links"),
        ("star:hosts=many", "hosts=many is not a whole number"),
        ("star:hosts=1K", "hosts=1K is not a whole number"),
        ("star:hosts=1_0", "hosts=1_0 is not a whole number"),
        ("star:hosts=4.0", "hosts=4.0 is not a whole number"),
        ("star:hosts=", "hosts= is not a whole number"),
        ("star:hosts=4,server=", "server= is not a name"),
        ("star:hosts=0", "hosts=0 must be at least 1"),
        ("star:hosts=-4", "hosts=-4 must be at least 1"),
        ("fat-tree:4,oversubscription=0.5", "oversubscription=0.5 must be at least 1"),
        ("fat-tree:4,oversubscription=nan", "oversubscription=nan is not a number"),
        ("torus:4x0", "dims=4x0 must be at least 1"),
        ("torus:4x", "dims=4x is not sizes such as 4x4x4"),
        ("star:4,hosts=5", "hosts is given twice"),
        ("star:radix=8,4", "'4' is not a parameter and its value"),
        ("star:4,", "'' is not a parameter and its value"),
        ("star:4,switch=QM97", "in the catalog 'QM97'; did you mean"),
        ("star:4,server=hots", "in the catalog 'hots'; did you mean host"),
        ("star:4,speed=MDR", "no speed 'MDR'; did you mean"),
    ],
)
def test_a_spec_that_cannot_be_used_is_refused_with_its_reason(spec, message):
    with pytest.raises(ConfigError) as refusal:
        load(spec)
    assert message in str(refusal.value)


def test_a_refusal_shows_how_the_spec_is_written():
    with pytest.raises(ConfigError) as refusal:
        load("torus:4x4,host=2")
    usage = "\n  torus:4x4x4[,hosts=1][,server=host][,switch=NAME][,radix=N][,speed=NAME][,breakout=N][,planes=N]"
    assert str(refusal.value).endswith(usage)


@pytest.mark.parametrize("path", ["fabric.topo", "./fabric", "data/fabric", "/nowhere/at:all", "a.b" * 2000])
def test_a_spec_that_looks_like_a_path_is_a_missing_file(path):
    with pytest.raises(ConfigError, match="there is neither a file nor a topology"):
        load(path)


def test_a_file_is_read(tmp_path, monkeypatch):
    """Files of any registered format are read."""
    path = tmp_path / "some.fabric"
    path.write_text("")
    monkeypatch.setattr("weft.fabric.files.read", lambda read_path: read_path)
    assert load(str(path)) == path


@given(st.one_of(st.text(), st.builds("star:{}".format, st.text()), st.builds("torus:{}".format, st.text("0123x,="))))
def test_no_spec_fails_with_anything_but_a_clear_refusal(spec):
    with suppress(ConfigError):
        load(spec)


def test_the_topologies_are_described_for_people_and_for_programs():
    described = {topology.name: topology for topology in describe()}
    assert list(described) == sorted(described)
    assert set(described) >= {
        "star",
        "fat-tree",
        "superpod",
        "dragonfly",
        "dragonfly+",
        "torus",
        "mesh",
        "hyperx",
        "slim-fly",
    }
    fat_tree = described["fat-tree"]
    assert fat_tree.usage == (
        "fat-tree:hosts=N[,server=host][,levels=N][,pods=N][,oversubscription=1][,switch=NAME][,radix=N][,speed=NAME]"
        "[,breakout=N][,planes=N]"
    )
    parameters = {parameter.name: parameter for parameter in fat_tree.parameters}
    assert (parameters["hosts"].required, parameters["server"].required) == (True, False)
    assert (parameters["server"].default, parameters["oversubscription"].kind) == ("host", "float")
    assert all(topology.summary and p.meaning for topology in described.values() for p in topology.parameters)
    assert json.loads(json.dumps([asdict(topology) for topology in described.values()]))


def test_an_unknown_topology_keeps_its_name_for_programs():
    with pytest.raises(UnknownName) as refusal:
        load("fattree:hosts=4")
    assert refusal.value.name == "fattree"
