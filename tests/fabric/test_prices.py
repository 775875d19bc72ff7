"""Prices: sourced and plausible; the user's have priority; an invalid file is refused with its line."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import FileError
from weft.fabric import catalog
from weft.fabric.prices import ELECTRICITY, Price, read_prices
from weft.fabric.rates import Technology, speeds

OFFER = 'source = "an offer"\ndate = 2026-11-02\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "quotes.toml"
    path.write_text(text)
    return path


def test_every_price_of_weft_names_its_source_and_is_said_to_be_weak() -> None:
    (own,) = read_prices().layers
    assert len(own) > 8
    for name, price in own.items():
        assert len(price.source) > 20, name
        assert price.date >= datetime.date(2026, 1, 1)
        assert price.weak  # no vendor prints prices


def test_parts_without_a_price_have_the_default_price() -> None:
    """Adapters 3,000 to 5,000 against 1,000 to 2,000, ports 500 to 1,000 against 200 to 400, cables 50 to 200."""
    prices = read_prices()
    bands = {
        name: (price.low_usd, price.high_usd)
        for name in ("ConnectX-7", "ConnectX-7-EN", "QM9700", "SN5400", "SN2700", "HDR-DAC", "HDR-AOC")
        if (price := prices.of(catalog.find(name)))
    }
    assert bands == {
        "ConnectX-7": (3_000, 5_000),
        "ConnectX-7-EN": (1_000, 2_000),
        "QM9700": (64 * 500, 64 * 1_000),
        "SN5400": (64 * 200, 64 * 400),
        "SN2700": (12_000, 12_000),
        "HDR-DAC": (50, 100),
        "HDR-AOC": (200, 200),
    }


def test_parts_of_800_gigabit_have_prices_of_their_own(tmp_path: Path) -> None:
    """Two ports of 400G on one card count as 800G; a price of yours for all ports goes before weft's for 800G."""
    prices = read_prices()
    fast = {name: prices.of(catalog.find(name)) for name in ("ConnectX-8", "ConnectX-8-EN", "Q3400", "SN5600")}
    assert {name: price.low_usd for name, price in fast.items() if price} == {
        "ConnectX-8": 4_500,
        "ConnectX-8-EN": 1_500,
        "Q3400": 144 * 1_000,
        "SN5600": 64 * 400,
    }
    link = prices.link(catalog.cable_for("XDR", 30))
    assert link is not None
    assert (link.low_usd, link.high_usd) == (2 * 600 + 50, 2 * 1_000 + 100)
    mine = read_prices(write(tmp_path, f'["InfiniBand switch port"]\nusd = 70\n{OFFER}'))
    ours = mine.of(catalog.switch("Q3400"))
    assert ours is not None
    assert ours.low_usd == 144 * 70


def test_only_omni_path_has_no_price() -> None:
    parts = [*catalog.switches(), *catalog.adapters()]
    missing = [part for part in parts if read_prices().of(part) is None]
    assert {part.technology for part in missing} == {Technology.OMNI_PATH}
    assert all(read_prices().link(cable) for cable in catalog.cables())


def test_the_order_of_media_is_the_order_of_prices() -> None:
    """`cable_for` goes by medium: a link of short copper is not dearer than one of optics."""
    prices = read_prices()
    for line in speeds():
        of_speed = [one for one in catalog.cables() if line.name in one.speeds]
        for cages in {one.cages for one in of_speed}:  # those for a cage replace those for any
            result = sorted((one for one in of_speed if one.cages == cages), key=lambda one: one.medium)
            bands = [(price.low_usd, price.high_usd) for one in result if (price := prices.link(one))]
            assert bands == sorted(bands)
            assert [high for _, high in bands] == sorted(high for _, high in bands)


@pytest.mark.parametrize("name", ["dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "host"])
def test_servers_have_a_weak_price(name: str) -> None:
    price = read_prices().of(catalog.server(name))
    assert price is not None
    assert price.weak


def test_a_file_of_yours_stands_before_weft_by_name(tmp_path: Path) -> None:
    quotes = {"qm9700": "14_500", '"Ethernet switch port"': "[150, 300]", "dgx-h100": "300_000"}
    prices = read_prices(write(tmp_path, "".join(f"[{name}]\nusd = {usd}\n{OFFER}" for name, usd in quotes.items())))
    assert prices.of(catalog.switch("QM9700")) == Price(
        low_usd=14_500, high_usd=14_500, source="an offer", date=datetime.date(2026, 11, 2)
    )
    sn2700 = prices.of(catalog.switch("SN2700"))  # yours for all ports goes before weft's for this switch
    assert sn2700 is not None
    assert (sn2700.low_usd, sn2700.high_usd) == (32 * 150, 32 * 300)
    server = prices.of(catalog.server("dgx-h100"))
    assert server is not None
    assert str(server) == "300,000"
    for name in ("QM8700", "ConnectX-7", "NDR-DAC"):
        assert prices.of(catalog.find(name)) == read_prices().of(catalog.find(name))
    assert prices.named(ELECTRICITY) == read_prices().named(ELECTRICITY)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[QM9701]\nusd = 1\n", r"quotes.toml:1: 'QM9701' is not valid; expected .*did you mean .*QM9700"),
        ('["Infiniband port"]\nusd = 1\n', r"did you mean .*InfiniBand switch port"),
        ("\nQM9700 = 3\n", r"quotes.toml:2: '3' is not valid; expected one number or a band"),
        (f"[QM9700]\nusd = [3, 1]\n{OFFER}", r"quotes.toml:2: '\[3, 1\]' is not valid; expected one number or a band"),
        (f"[QM9700]\nusd = -1\n{OFFER}", r"quotes.toml:2: '-1' is not valid; expected one number or a band"),
        (f"[QM9700]\nusd = nan\n{OFFER}", r"quotes.toml:2: 'nan' is not valid"),
        (f"[QM9700]\nusd = inf\n{OFFER}", r"quotes.toml:2: 'inf' is not valid"),
        (f"[QM9700]\nusd = 'dear'\n{OFFER}", r"quotes.toml:2: 'dear' is not valid; expected a number or a list"),
        ("[QM9700]\nusd = 1\ndate = 2026-11-02\n", r"quotes.toml:1: .* expected a mapping with source"),
        ("[QM9700]\nusd = 1\nsource = 'x'\n", r"quotes.toml:1: .* expected a mapping with date"),
        (
            "[QM9700]\nusd = 1\nsource = ' '\ndate = 2026-11-02\n",
            r"quotes.toml:3: ' ' is not valid; expected the source",
        ),
        ("[QM9700]\nusd = 1\nsource = 'x'\ndate = 'soon'\n", r"quotes.toml:4: 'soon' is not valid; expected a date"),
        (f"[QM9700]\nusd = 1\neur = 1\n{OFFER}", r"quotes.toml:3: 'eur' is not valid; expected .*usd"),
        (
            f"[QM9700]\nusd = 1\n{OFFER}[qm9700]\nusd = 2\n{OFFER}",
            r"quotes.toml:5: 'qm9700' is not valid; expected another",
        ),
        (f"[PUE]\nusd = 1\n{OFFER}", r"quotes.toml:2: 'usd' is not valid; expected .*value"),
        (f"[PUE]\nvalue = -1\n{OFFER}", r"quotes.toml:2: '-1' is not valid"),
        ("QM9700 =", r"quotes.toml:1: .*TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=says):
        read_prices(write(tmp_path, text))


def test_a_file_of_any_name_is_toml_unless_it_is_yaml(tmp_path: Path) -> None:
    for name, text in (
        ("quotes", f"[QM9700]\nusd = 7\n{OFFER}"),
        ("q.yaml", "QM9700: {usd: 7, source: x, date: 2026-11-02}"),
    ):
        (tmp_path / name).write_text(text)
        assert str(read_prices(tmp_path / name).of(catalog.switch("QM9700"))) == "7"
    (tmp_path / "wrong").write_text(f"\n[QM9700]\nusd = -7\n{OFFER}")
    with pytest.raises(FileError, match=r"wrong:3: '-7' is not valid"):
        read_prices(tmp_path / "wrong")


_NUMBERS = st.one_of(st.floats(), st.integers(-(10**20), 10**20))


@given(usd=st.one_of(_NUMBERS, st.lists(_NUMBERS, max_size=3)), source=st.text("ab \\n", max_size=4))
def test_a_file_is_read_as_written_or_refused(usd, source, tmp_path_factory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(f"[QM9700]\nusd = {usd}\nsource = '{source}'\ndate = 2026-11-02\n")
    try:
        price = read_prices(path).of(catalog.switch("QM9700"))
    except FileError:
        return
    low, high = usd if isinstance(usd, list) else (usd, usd)
    assert price is not None
    assert (price.low_usd, price.high_usd, price.source) == (float(low), float(high), source)
    assert 0 <= price.low_usd <= price.high_usd < float("inf")


def test_cables_are_priced_as_they_are_ordered_and_by_the_link(tmp_path: Path) -> None:
    """A twin-port cable is two links; a link of optics is half a twin-port transceiver, a single one and a fibre."""
    dac, optics = catalog.find("NDR-DAC"), catalog.find("NDR-SR4")
    assert isinstance(dac, catalog.Cable)
    assert isinstance(optics, catalog.Cable)
    own = read_prices()
    assert str(own.of(dac)) == "100 to 200"
    assert str(own.link(dac)) == "50 to 100"
    assert str(own.link(optics)) == f"{2 * 293 + 50} to {2 * 391 + 100}"
    quotes = {"NDR-DAC": 180, "MMA4Z00-NS": 900, "MMA4Z00-NS400": 600, "MFP7E10": 40}
    prices = read_prices(write(tmp_path, "".join(f"[{name}]\nusd = {usd}\n{OFFER}" for name, usd in quotes.items())))
    assert str(prices.link(dac)) == "90"
    assert str(prices.link(optics)) == f"{900 // 2 + 600 + 40:,}"


def test_a_server_of_ones_own_has_the_price_of_its_file(tmp_path: Path) -> None:
    """The price goes by the server's name, in any folder and with any cards; the server that it resembles has
    another.
    """
    own = tmp_path / "my-server.yaml"
    own.write_text("like: dgx-h100\ngpu: H200\n")
    box = catalog.server(f"{own}+ConnectX-8+4rails")
    assert read_prices().of(box) is None
    quotes = f'["my-server.yaml"]\nusd = 310_000\n{OFFER}["racks/other.toml"]\nusd = 1\n{OFFER}'
    assert str(read_prices(write(tmp_path, quotes)).of(box)) == "310,000"


_PLAIN = st.one_of(st.none(), st.booleans(), _NUMBERS, st.text("a1:.[# ", max_size=6), st.just("2026-11-02"))
_ANY = st.recursive(
    _PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner), max_leaves=4
)
_ENTRIES = st.dictionaries(st.sampled_from(["usd", "value", "source", "date", "weak", "eur"]), _ANY) | _ANY
_NAMES = st.sampled_from(["QM9700", "qm9700", "fibre", "PUE", "Infiniband adapter", "dgx-h100", "x", ""])


@given(anything=st.dictionaries(_NAMES, _ENTRIES, max_size=3) | _ANY)
def test_any_file_gives_prices_or_a_file_error(anything, tmp_path_factory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"  # JSON is YAML
    path.write_text(json.dumps(anything))
    try:
        prices = read_prices(path)
    except FileError:
        return
    for price in prices.layers[0].values():
        assert 0 <= price.low_usd <= price.high_usd < float("inf")
        assert price.source.strip()
