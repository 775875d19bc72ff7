"""Rules of a lab that need no processes: addresses to join at, network interfaces that are InfiniBand."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.lab.join.server import parse_address, show_address
from weft.lab.sysfs_mount import is_infiniband


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:7471", ("10.0.0.1", 7471)),
        ("lab.example:0", ("lab.example", 0)),
        ("[fd00::1]:65535", ("fd00::1", 65_535)),
    ],
)
def test_an_address_to_join_at_is_read_and_shown(text, address):
    assert parse_address(text) == address
    assert show_address((*address, 0, 0)) == text


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *((text, "is no address to join at") for text in ("10.0.0.1", ":7471", "lab:", "lab:x", "lab:²", "lab:65536")),
        *((text, "stands in brackets") for text in ("fd00::1:7471", "[fd00::1:7471", "fd00::1]:7471")),
    ],
)
def test_wrong_addresses_are_refused_with_an_example(text, error):
    with pytest.raises(ConfigError, match=error):
        parse_address(text)


def test_infiniband_interfaces_are_known_by_their_type(tmp_path):
    for name, kind in (("ib0", "32\n"), ("eth0", "1\n")):
        (tmp_path / "class/net" / name).mkdir(parents=True)
        (tmp_path / "class/net" / name / "type").write_text(kind)
    (tmp_path / "class/net/bonding_masters").touch()
    names = ("ib0", "eth0", "bonding_masters", "absent")
    assert [is_infiniband(str(tmp_path), "/class/net", name) for name in names] == [True, False, False, False]
    folders = [("/class", "infiniband_verbs"), ("/class", "net"), ("/bus", "infiniband")]
    assert [is_infiniband(str(tmp_path), folder, name) for folder, name in folders] == [True, False, False]
