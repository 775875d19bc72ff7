"""Tests whose peer is missing are skipped, or fail with CI=true."""

from __future__ import annotations

import re
import tomllib

import pytest
from tests.conftest import ROOT
from tests.interop.conftest import find_module


def test_an_absent_peer_skips_with_the_way_to_get_it(peer, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not installed: make peers"):
        peer("no-such-program")
    with pytest.raises(pytest.skip.Exception, match="no_such_module is not installed: make peers"):
        find_module("no_such_module")


def test_an_absent_peer_is_a_failure_where_all_should_be_there(peer, monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program is not installed: make peers"):
        peer("no-such-program")
    with pytest.raises(pytest.fail.Exception, match="no_such_module is not installed: make peers"):
        find_module("no_such_module")


def test_large_peers_are_installed_by_make_peers_only():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    makefile = (ROOT / "Makefile").read_text()
    large = {"peers", "parquet", "postgres", "ray"}
    assert large <= extras.keys()
    peers = makefile.partition("\npeers:")[2].partition("\n\n")[0]
    installed = {
        name: set(
            re.findall(r"\w+", makefile.partition(f"\n$(VENV)/.{name}:")[2].partition("-e '.[")[2].partition("]")[0])
        )
        for name in ("peers", "tested")
    }
    assert installed == {"peers": {"test"} | large, "tested": {"test"}}
    assert "$(VENV)/.peers" in peers
    assert "neutron/.installed" in peers
    assert "--no-deps $(ENGINES)" in peers
    assert not [extra for extra in extras["test"] if re.search("ray|arrow|parquet|neutron|schemathesis|psycopg", extra)]
