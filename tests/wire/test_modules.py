"""Memory of modules: fields at the bytes of SFF-8636 and CMIS, and a module that is written and read is the same."""

from __future__ import annotations

import pytest

from weft.wire.cable_info import CableError, CableInfo
from weft.wire.modules import ACTIVE_COPPER, OPTICAL, OSFP, PASSIVE_COPPER, QSFP28, Module, read_module, write_memory

DARK: dict = {"receive_mw": (), "transmit_mw": (), "bias_ma": ()}


def module(**changes) -> Module:
    fields = {
        "form": QSFP28, "vendor": "Acme", "part": "X-100", "serial": "SN12345", "revision": "B2", "technology": OPTICAL,
        "length_m": None, "temperature_c": 47.5, "supply_v": 3.3, "receive_mw": (0.9, 0.8, 0.7, 0.0),
        "transmit_mw": (1.0, 1.1, 1.2, 1.3), "bias_ma": (7.0, 7.2, 7.4, 7.6),
    }  # fmt: skip
    return Module(**(fields | changes))


def reader(memory):
    return lambda page, at, size: memory[page][at : at + size]


@pytest.mark.parametrize(
    "written",
    [
        module(),
        module(length_m=30.0),
        module(temperature_c=-5.25),
        module(form=OSFP, receive_mw=(0.5,) * 8, transmit_mw=(1.0,) * 8, bias_ma=(6.5,) * 8),
        module(form=OSFP, technology=ACTIVE_COPPER, length_m=5.0, **DARK),
        module(technology=PASSIVE_COPPER, length_m=2.0, temperature_c=None, supply_v=None, **DARK),
    ],
)  # fmt: skip
def test_a_module_is_read_as_it_was_written(written):
    assert read_module(reader(write_memory(written))) == written


def test_fields_of_qsfp_are_at_the_bytes_of_sff_8636():
    memory = write_memory(module(length_m=30.0))[0]
    assert (memory[0], memory[128]) == (0x11, 0x11)
    assert memory[22:24] == bytes([47, 128])  # temperature, 1/256 degrees
    assert int.from_bytes(memory[26:28], "big") == 33_000  # 100 uV
    assert int.from_bytes(memory[34:36], "big") == 9_000  # received power of lane 1, 0.1 uW
    assert int.from_bytes(memory[42:44], "big") == 3_500  # bias, 2 uA
    assert int.from_bytes(memory[52:54], "big") == 11_000  # sent by lane 2
    assert memory[146] == 30
    assert memory[148:164] == b"Acme            "
    assert memory[168:184] == b"X-100           "
    assert memory[196:212] == b"SN12345         "
    assert memory[191] == sum(memory[128:191]) & 0xFF
    assert memory[223] == sum(memory[192:223]) & 0xFF


def test_fields_of_osfp_are_at_the_bytes_of_cmis():
    pages = write_memory(module(form=OSFP, receive_mw=(0.5,) * 8, transmit_mw=(1.0,) * 8, bias_ma=(6.5,) * 8))
    memory = pages[0]
    assert (memory[0], memory[128]) == (0x19, 0x19)
    assert memory[14:16] == bytes([47, 128])
    assert memory[129:133] == b"Acme"
    assert memory[166:173] == b"SN12345"
    assert memory[222] == sum(memory[128:222]) & 0xFF
    lanes = pages[0x11]
    assert [int.from_bytes(lanes[at : at + 2], "big") for at in (154, 170, 186)] == [10_000, 3_250, 5_000]
    assert lanes[:128] == memory[:128]


@pytest.mark.parametrize(("length_m", "read_m"), [(0.5, 0.5), (3.0, 3.0), (6.4, 7.0), (100.0, 100.0), (635.0, 700.0)])
def test_lengths_of_cmis_are_rounded_up_to_a_step_of_their_base(length_m, read_m):
    written = module(form=OSFP, technology=ACTIVE_COPPER, length_m=length_m, **DARK)
    assert read_module(reader(write_memory(written))).length_m == pytest.approx(read_m)


def test_the_layout_of_cable_info_is_that_of_linux():
    """As in the kernel's mlx4 driver: I2C address, page, address, reserved, size, 8 reserved bytes, 48 of data."""
    raw = CableInfo.pack(i2c_address=0x50, page_number=3, device_address=0x1234, size_bytes=48, data=bytes(range(48)))
    assert raw == bytes([0x50, 3, 0x12, 0x34, 0, 0, 0, 48, *bytes(8), *range(48)])


def test_every_error_has_a_text():
    assert all(error.text for error in CableError)
