"""weft has every name and number of Debian's pyverbs, which is compiled from rdma-core."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from weft.verbs.pyverbs import OTHER_NAMES

pytestmark = pytest.mark.interop

PEERS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft" / "peers"  # unpacked by `make peers`
NAMES = ["addr", "base", "cm_enums", "cmid", "cq", "device", "dma_util", "enums", "fork", "mem_alloc"]
NAMES += ["mr", "pd", "pyverbs_error", "qp", "srq", "utils", "wr", "xrcd"]
DUMP = """
import importlib, json, sys
found = {}
for name in sys.argv[1:]:
    module = importlib.import_module("pyverbs." + name)
    found[name] = {
        key: int(value) if isinstance(value, int) else
             sorted(k for k in vars(value) if not k.startswith("_")) if isinstance(value, type) else None
        for key, value in vars(module).items()
        if not key.startswith("__") and (isinstance(value, int) or getattr(value, "__module__", "") == module.__name__)
    }
print(json.dumps(found))
"""
NOT_OURS = {"LOG_LEVEL", "_copy_caps"}  # pyverbs sets up logging for the whole process


@pytest.fixture(scope="module")
def real() -> dict[str, dict[str, int | list[str] | None]]:
    """Return the contents of pyverbs' modules: constants with values, classes with the names of their members,
    functions.
    """
    done = subprocess.run(
        ["/usr/bin/python3", "-c", DUMP, *NAMES],
        env={**os.environ, "PYTHONPATH": str(PEERS / "usr/lib/python3/dist-packages")},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        absent = f"pyverbs cannot be imported: make peers ({done.stderr.strip().splitlines()[-1]})"
        if os.environ.get("CI") == "true":
            pytest.fail(absent)
        pytest.skip(absent)
    return json.loads(done.stdout)


def ours(name: str) -> object:
    return importlib.import_module(OTHER_NAMES.get(name, f"weft.verbs.pyverbs.{name}"))


def parts_of(kind: type) -> set[str]:
    """Return the members of an object: those of its class, and those that its functions assign to `self`."""
    bases = [base for base in kind.__mro__ if base.__module__.startswith("weft.")]
    own = {name for base in bases for name in re.findall(r"self\.(\w+)", inspect.getsource(base))}
    return own | set(dir(kind)) | {name for base in bases for name in vars(base).get("__annotations__", ())}


@pytest.mark.parametrize("name", ["enums", "cm_enums", "mem_alloc"])
def test_every_number_of_pyverbs_has_its_value(real, name):
    numbers = {key: value for key, value in real[name].items() if isinstance(value, int)}
    assert len(numbers) > 10
    assert {key: getattr(ours(name), key, None) for key in numbers} == numbers


@pytest.mark.parametrize("name", ["enums", "cm_enums"])
def test_every_enumeration_of_pyverbs_has_its_members(real, name):
    for key, members in real[name].items():
        if isinstance(members, list):
            assert set(members) <= set(vars(getattr(ours(name), key))), key


@pytest.mark.parametrize("name", NAMES)
def test_every_class_and_function_of_pyverbs_is_there_with_its_parts(real, name):
    missing = []
    for key, parts in real[name].items():
        mine = getattr(ours(name), key, None)
        if mine is None and key not in NOT_OURS:
            missing.append(key)
        elif isinstance(parts, list):
            own = parts_of(mine)
            missing += [f"{key}.{part}" for part in parts if part not in own]
    assert missing == []
