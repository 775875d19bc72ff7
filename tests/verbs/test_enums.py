"""The numbers of the verbs interface."""

from __future__ import annotations

from enum import IntEnum

import pytest
from mypy import api
from tests.verbs.typed_enums import FOLDER, STUBS, stub

from weft.verbs import enums
from weft.verbs.enums import cm as cm_enums


@pytest.mark.parametrize("module", [enums, cm_enums])
def test_every_member_is_also_a_constant_of_the_module(module):
    members = enums.members(module)
    assert len(members) > 20
    for name, member in members.items():
        assert getattr(module, name) is member


def test_no_name_is_in_two_enumerations():
    classes = [item for item in vars(enums).values() if isinstance(item, type) and issubclass(item, IntEnum)]
    classes.remove(IntEnum)
    names = [name for enumeration in classes for name in enumeration.__members__]
    assert len(classes) == 64
    assert len(names) == len(set(names)) == 394


def test_flags_put_together_are_a_plain_number():
    both = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_READ
    assert type(both) is int
    assert both == 5


def test_a_member_is_printed_as_its_number():
    """pyverbs does the same: programs format states into messages."""
    assert f"{enums.IBV_QPS_RTS}" == "3"


def test_names_with_an_underscore_are_wider_than_an_int():
    assert enums._IBV_ALLOCATOR_USE_DEFAULT == (1 << 64) - 1
    assert enums._IBV_DEVICE_RAW_SCATTER_FCS == 1 << 34


@pytest.mark.parametrize("name", STUBS)
def test_type_checkers_are_told_of_every_member(name):
    messages = (FOLDER / name).read_text(encoding="utf-8")
    assert messages == stub(*STUBS[name]), "write it again: python tests/verbs/typed_enums.py"


def test_a_misspelt_constant_is_an_error_of_the_type_checker(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import weft.verbs.enums as e\n"
        "from weft.verbs.enums import IBV_QPT_RC, cm\n"
        "from weft.verbs.enums import IBV_QPT_RX\n"
        "print(IBV_QPT_RC | e.IBV_QPT_UD, e.IBV_QPT_UX)\n"
        "print(cm.RDMA_PS_TCP, cm.RDMA_PS_TPC)\n"
    )
    alone = ["--strict", "--follow-imports=skip", f"--cache-dir={tmp_path}"]  # fast: without the rest of weft
    output, _, status = api.run([*alone, str(program), *map(str, FOLDER.glob("*.py*"))])
    assert status == 1
    errors = [line for line in output.splitlines() if "attr-defined" in line]
    assert [line.split(":")[1] for line in errors] == ["3", "4", "5"], output
    for name, line in zip(("IBV_QPT_RX", "IBV_QPT_UX", "RDMA_PS_TPC"), errors, strict=True):
        assert name in line
