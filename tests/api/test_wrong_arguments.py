"""A wrong argument is an error of weft that names it, never a traceback from numpy or numba."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import weft
from weft.errors import ConfigError

TREE = weft.load("fat-tree:hosts=8,radix=4")
PODS = weft.load("superpod:su=1,servers=2")

WRONG: dict[str, Callable[[], object]] = {
    "no topology 'superpd'; did you mean superpod": lambda: weft.load("superpd:su=1"),
    "path of a file, got None": lambda: weft.load(None),
    "the spec of the fabric is empty": lambda: weft.load(" "),
    "neither a file nor a topology": lambda: weft.load("nosuch.txt"),
    "is a directory": lambda: weft.load("."),
    "hosts=-4 must be at least 1": lambda: weft.load("fat-tree:hosts=-4"),
    "'1X' is not a number of bytes": lambda: weft.time(PODS, "all_reduce", "1X"),
    "0 bytes or more, got -5": lambda: weft.time(PODS, "all_reduce", -5),
    "whole number of bytes or text such as '1G', got 1.5": lambda: weft.time(PODS, "all_reduce", 1.5),
    "1 byte": lambda: weft.time(PODS, "all_reduce", 0),
    "no collective 'all_redce'; did you mean all_reduce": lambda: weft.time(PODS, "all_redce", "1G"),
    "h1 has no GPUs": lambda: weft.time(TREE, "all_reduce", "1G"),
    "--servers 99": lambda: weft.time(PODS, "all_reduce", "1G", servers=99),
    "no server 'dgx9'": lambda: weft.time(PODS, "all_reduce", "1G", servers=["dgx1", "dgx9"]),
    "servers must be a number, text or a list": lambda: weft.time(PODS, "all_reduce", "1G", servers=None),
    "no network 'ib'": lambda: weft.time(PODS, "all_reduce", "1G", network="ib"),
    "--algo must be text, got None": lambda: weft.time(PODS, "all_reduce", "1G", algo=None),
    "--nccl must be text, got 2.2": lambda: weft.time(PODS, "all_reduce", "1G", nccl=2.2),
    "--seed must be 0 or more, got -1": lambda: weft.time(PODS, "all_reduce", "1G", seed=-1),
    "seed must be a whole number, got 1.5": lambda: weft.time(PODS, "all_reduce", "1G", seed=1.5),
    "no adapter with a network cable": lambda: weft.time(
        weft.load("fat-tree:hosts=2,server=dgx-h100").without("leaf1"), "all_reduce", "1G"
    ),
    "no routing engine 'ftree2'; did you mean fat-tree": lambda: weft.route(TREE, routing_engine="ftree2"),
    "--routing-engine must be text, got 3": lambda: weft.route(TREE, routing_engine=3),
    "--lmc must be 0 to 7, got 9": lambda: weft.route(TREE, lmc="9"),
    "'spine1' is not KIND:WHERE": lambda: weft.route(TREE, fault="spine1"),
    "has no forwarding tables": lambda: weft.check(TREE),
    "nosuch: no such file": lambda: weft.check(TREE, tables="nosuch"),
    "--tables must be a path, got 3": lambda: weft.check(TREE, tables=3),
    "fewer than two hosts": lambda: weft.rate("star:hosts=1"),
    "no node, port or server 'h99'": lambda: weft.path(TREE, "h1", "h99"),
    "destination must be text, got None": lambda: weft.path(TREE, "h1", None),
    "no traffic 'incst'; did you mean incast": lambda: weft.simulate(TREE, "incst"),
    "--traffic must be text, got None": lambda: weft.simulate(TREE, None),
    "--senders must be 1 to 7": lambda: weft.simulate(TREE, "incast", senders=-1),
    "--load must be in": lambda: weft.simulate(TREE, "uniform", load=5),
    "--load must be a number, got 'x'": lambda: weft.simulate(TREE, "uniform", load="x"),
    "--load is for uniform, adversarial and tornado traffic": lambda: weft.simulate(TREE, "incast", load=0.5),
    "a.csv defines all of its messages: leave out --size": lambda: weft.simulate(TREE, "a.csv", size="4K"),
    "--tables brings its own routes": lambda: weft.simulate(TREE, tables="x", routing_engine="min-hop"),
    "no engine 'pkt'; did you mean packet": lambda: weft.simulate(TREE, engine="pkt"),
    "no option of a simulation 'netwrk'; did you mean network": lambda: weft.simulate(TREE, netwrk="roce"),
    "skip_tolerance must be a number, got 'x'": lambda: weft.simulate(TREE, skip_tolerance="x"),
    "cannot draw x.xyz": lambda: weft.draw(TREE, "x.xyz"),
    "--output must be a path, got None": lambda: weft.draw(TREE, None),
    "--colour-by must be speed, load or length": lambda: weft.draw(TREE, "x.svg", colour_by="x"),
    "x.xyz: unknown format": lambda: weft.export(TREE, "x.xyz"),
    "no model 'llama9'; did you mean llama": lambda: weft.train("llama9", PODS),
    "gpus 13 is not a multiple": lambda: weft.train("llama3-8b", "ndr", gpus=13),
    "no field of a layout 'tpp'; did you mean tp": lambda: weft.train("llama3-8b", "ndr", gpus=16, tpp=4),
    "tp must be a whole number, got 'a'": lambda: weft.train("llama3-8b", "ndr", gpus=16, tp="a"),
    "no fabric in the catalog 'nrd'; did you mean ndr": lambda: weft.train("llama3-8b", "nrd", gpus=16),
    "path of a file, got <Fabric": lambda: weft.compare(PODS),
    "--job must be a collective and its size": lambda: weft.compare("superpod:su=1,servers=2", "all_reduce"),
    "give the size of the cluster": lambda: weft.plan(),
    "--gpus must be 1 or more, got -1": lambda: weft.plan(gpus=-1),
    "--gpus must be a whole number, got 8.5": lambda: weft.plan(gpus=8.5),
    "radix=4 is the fabric to plan: leave out --gpus": lambda: weft.plan(TREE, gpus=8),
    "--oversubscription must be a number, got 'x'": lambda: weft.plan(gpus=8, oversubscription="x"),
    "--room must be a path, got 3": lambda: weft.plan(gpus=8, room=3),
    "no such file": lambda: weft.bill(TREE, prices="nosuch.toml"),
    "no running lab 'api-none'": lambda: weft.diagnose("api-none"),
    "--polls must be at least 2": lambda: weft.diagnose("api-none", polls=1),
    "--every must be a number, got 'x'": lambda: weft.diagnose("api-none", every_s="x"),
}


@pytest.mark.parametrize("message", WRONG)
def test_error_names_the_argument_and_a_remedy(message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        WRONG[message]()
    assert message in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_function_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'laod'"):
        weft.laod  # noqa: B018
