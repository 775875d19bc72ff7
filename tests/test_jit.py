from __future__ import annotations

import functools
import importlib
import os
import re
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import pytest
from numba.core.dispatcher import Dispatcher
from tests.lab.mounts import need_mounts
from tests.patience import without_notices

from weft import compiler, jit
from weft.jit import bits, object_code, sources
from weft.verbs.shm import atomic

ROOT = Path(sources.__file__).parent.parent
KERNELS = sorted(
    ".".join(("weft", *path.relative_to(ROOT).with_suffix("").parts))
    for path in ROOT.rglob("*.py")
    if re.search(r"^@(kernel|lean_kernel|quick_kernel|handler|part|inlined)$", path.read_text(encoding="utf-8"), re.M)
)


def folders() -> dict[str, Path]:
    return {module: sources.cache_folder.__wrapped__(module) for module in KERNELS}


@functools.cache
def folders_before() -> dict[str, Path]:
    return folders()


def edit(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    read = sources._source.__wrapped__
    monkeypatch.setattr(sources, "_source", lambda name: f"{read(name)}\n" if name == module else read(name))


def changed_by_an_edit_of(monkeypatch: pytest.MonkeyPatch, module: str) -> set[str]:
    before = folders_before()
    edit(monkeypatch, module)
    return {name for name, place in folders().items() if place != before[name]}


def test_the_cache_of_checked_kernels_is_another_than_that_of_fast_ones():
    code = "from weft.jit import cache_folder; print(cache_folder('weft.wire.kernels'))"
    environment = os.environ | {"NUMBA_BOUNDSCHECK": str(int(not sources.BOUNDSCHECK))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parent == sources.cache_folder("weft.wire.kernels").parent
    assert Path(done.stdout.strip()) != sources.cache_folder("weft.wire.kernels")


def test_an_edit_in_a_called_function_changes_the_cache_folder(monkeypatch):
    changed = changed_by_an_edit_of(monkeypatch, "weft.sim.packet.state")
    packet = {name for name in KERNELS if re.fullmatch(r"weft\.sim\.packet\.\w+", name)}
    alone = {"weft.sim.packet.draws", "weft.sim.packet.frames"}  # they need no other module
    assert packet - alone <= changed
    assert not {name for name in changed if not name.startswith("weft.sim.")}


@pytest.mark.parametrize(
    "module",
    [
        "weft.verbs.pyverbs.qp",
        "weft.verbs.pyverbs.cmid",
        "weft.verbs.hca.requester",
        "weft.sm.sweep",
        "weft.sim.result",
    ],
)
def test_an_edit_that_no_kernel_can_see_compiles_nothing(monkeypatch, module):
    assert sources._source(module) is not None
    assert changed_by_an_edit_of(monkeypatch, module) == set()


@pytest.mark.parametrize("module", KERNELS)
def test_all_sources_of_a_kernel_are_in_the_name_of_its_cache(module):
    """Every name of weft that a kernel reads comes from a module whose source is hashed."""
    names = sources.sources(module)
    for var in vars(importlib.import_module(module)).values():
        if isinstance(var, Dispatcher) and var.__module__ == module:
            used = (var.py_func.__globals__.get(name) for name in var.py_func.__code__.co_names)
            owners = {getattr(item, "__module__", None) or getattr(item, "__name__", "") for item in used}
            assert {owner for owner in owners if str(owner).startswith("weft.")} <= names.keys()


def test_numba_keeps_the_kernels_of_weft_there():
    from weft.wire import kernels

    result = [var for var in vars(kernels).values() if isinstance(var, Dispatcher)]
    cached = [item for item in result if item.stats.cache_path]
    assert cached
    assert {item.stats.cache_path for item in cached} == {str(sources.cache_folder("weft.wire.kernels"))}


# -- loading ----------------------------------------------------------------------------------------------------------

# Kernels in a user's module: numba chooses the folder of their cache.
_MODULE = """
from weft.jit import kernel

@kernel
def inner(array):
    return array.sum()

@kernel
def outer(array):
    return inner(array) + inner(array[1:])

@kernel
def hashed():
    return hash("more than sixteen letters")
"""
# Does this process import numba's functions, compile a runtime and load numba's extensions? Does it hold the compiler's
# lock at the end of its turn? Otherwise another thread would join that turn and lose it before its end.
_CALL = """
import sys, numpy, mine
from numba.core import entrypoints
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime import nrtdynmod
from weft.jit.cache import KernelCache

made, make = [], nrtdynmod.create_nrt_module
nrtdynmod.create_nrt_module = lambda context: made.append(1) or make(context)
locked, end = [], KernelCache.end_turn
KernelCache.end_turn = lambda self: locked.append(global_compiler_lock.is_locked()) or end(self)
mine.inner(numpy.arange(5))
print('numba.np.arraymath' in sys.modules, len(made), entrypoints._already_initialized, *locked)
"""


def python(text: str, folder: Path, **variables: str) -> str:
    environment = os.environ | {"XDG_CACHE_HOME": str(folder), "PYTHONPATH": os.pathsep.join((str(folder), *sys.path))}
    environment |= variables
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, without_notices(done.stderr)) == (0, "")
    return done.stdout


def test_importing_kernels_looks_for_no_cache(tmp_path):
    python("import weft.routing.kernels.walk", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> tuple[Path, list[str]]:
    """The folder of a process that compiled `inner`, and the output of that process."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "mine.py").write_text(_MODULE)
    return folder, python(_CALL, folder).split()


def test_cached_kernels_need_no_compiler(compiled):
    """They need neither numba's modules of compiled functions, nor a newly compiled runtime, nor numba's extensions."""
    folder, output = compiled
    assert output[:3] == ["True", "1", "True"]
    assert python(_CALL, folder).split()[:3] == ["False", "0", "False"]


def test_one_of_two_concurrent_processes_compiles_a_kernel(tmp_path):
    (tmp_path / "mine.py").write_text(_MODULE)
    call = "import numpy, mine; mine.inner(numpy.arange(5)); print(sum(mine.inner.stats.cache_hits.values()))"
    with ThreadPoolExecutor() as pool:
        assert sorted(pool.map(lambda _: python(call, tmp_path), range(2))) == ["0\n", "1\n"]


def test_no_other_thread_begins_to_compile_before_a_turn_has_ended(compiled):
    assert set(compiled[1][3:]) == {"True"}


def test_kernels_that_were_not_used_for_long_go_when_others_come(tmp_path):
    folders = [tmp_path / "weft" / "kernels" / f"{name}-{'0' * 16}" for name in ("wire.kernels", "sim.kernels")]
    for folder in folders:
        folder.mkdir(parents=True)
        os.utime(folder, (1, 1))
    python("from weft.wire import kernels; kernels.read_column._cache.cache_path", tmp_path)
    assert [folder.is_dir() for folder in folders] == [False, True]


_READ = """
import numpy as np
from weft.wire import kernels
row = np.arange(16, dtype=np.uint8).reshape(2, 8)
print(*(kernels.{0}(row, 0, 8, np.zeros(2, dtype=np.int64)) or sum(kernels.{0}.stats.cache_hits.values()),))
"""


def test_a_cache_that_cannot_be_written_is_read_and_other_kernels_are_compiled(tmp_path):
    """As in an image with a read-only root. For root the test mounts it: a folder's mode does not stop root."""
    assert python(_READ.format("read_column"), tmp_path) == "0\n"
    folder, prefix = tmp_path / "weft", ["sh", "-c"]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    lock = 'chmod -R a-w "$1"'
    if os.geteuid() == 0:
        need_mounts()
        prefix, lock = ["unshare", "--mount", *prefix], 'mount --bind -o ro "$1" "$1"'
    try:
        for name, hits in (("read_column", "1\n"), ("write_column", "0\n")):
            command = [*prefix, f'{lock} && exec "$2" -c "$3"', "sh", folder, sys.executable, _READ.format(name)]
            environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert (without_notices(done.stderr), done.stdout) == ("", hits)
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    finally:
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)


_FAIL = """
import fcntl, mine, numpy
from pathlib import Path
try:
    mine.inner('no array')
except Exception as error:
    print(type(error).__name__)
[lock] = Path(mine.inner.stats.cache_path).glob('mine.inner*.lock')
with lock.open('wb') as file:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print(mine.inner(numpy.arange(5)))
"""


def test_a_failed_compilation_releases_the_lock_and_another_takes_it(tmp_path):
    (tmp_path / "mine.py").write_text(_MODULE)
    assert python(_FAIL, tmp_path) == "TypingError\n10\n"


def test_a_kernel_that_is_compiled_may_call_one_that_was_loaded(compiled):
    """Its code contains the called kernel: the third process does not load that one."""
    folder, _ = compiled
    call = "a = numpy.arange(5); print(mine.inner(a), sum(mine.inner.stats.cache_hits.values()), mine.outer(a))"
    assert python(f"import numpy, mine; {call}", folder) == "10 1 20\n"
    assert python("import numpy, mine; print(mine.outer(numpy.arange(5)))", folder) == "20\n"


_PARTS = """
from weft.jit import handler, lean_kernel, part

@handler
def pick(array, at):
    if at < 0:
        raise ValueError("before the first")
    return array[at]

@part
def twice(array, at):
    return pick(array, at) * 2

@lean_kernel
def triple(array, at):
    return twice(array, at) + pick(array, at)
"""
_TRIPLE = """
import numpy, parts
from numba.core.codegen import CPUCodeLibrary

optimised, optimise = [], CPUCodeLibrary._optimize_final_module
CPUCodeLibrary._optimize_final_module = lambda self: optimised.append(self.name) or optimise(self)
for at in (2, 5, -1):
    try:
        print(parts.triple(numpy.arange(5), at))
    except (IndexError, ValueError) as error:
        print(error)
print(*(name for name in optimised if name in ("kernel", "inner")))
"""


def test_parts_of_a_kernel_are_optimised_only_in_it(tmp_path):
    """They pass on results and errors, in a compiled kernel and in a loaded one."""
    (tmp_path / "parts.py").write_text(_PARTS)
    results = ["6", "index is out of bounds", "before the first"]
    assert [python(_TRIPLE, tmp_path).splitlines() for _ in range(2)] == [[*results, "kernel"], [*results, ""]]


_STATE = """
from typing import NamedTuple
import numpy as np
from weft.jit import handler, lean_kernel
from weft.jit.references import by_reference

class State(NamedTuple):
    ones: np.ndarray
    table: np.ndarray
    records: np.ndarray

@handler
def add(s, at):
    s.records[at].total += s.table[at, at + 1] + s.ones[0]
    return len(s.table)

@lean_kernel
def total(s, n):
    s = by_reference(s)
    rows = 0
    for at in range(n):
        rows += add(s, at)
    return rows

@handler
def fold_part(s, n):
    return s.ones[0] if n == 0 else 3 * (fold_part(s, n - 1) ^ n)

@lean_kernel
def fold(s, n):
    return fold_part(s, n)

@lean_kernel
def lacks(s):
    return by_reference(s).absent

state = State(np.ones(1, np.int64), np.arange(6).reshape(2, 3), np.zeros(2, [("total", np.int64)]).view(np.recarray))
"""


def test_parts_read_and_write_a_state_by_reference(tmp_path):
    """The result is the same from a compiled kernel, from a loaded one, and interpreted."""
    (tmp_path / "mine.py").write_text(_STATE)
    call = "from mine import state, total; print(total(state, 2), *state.records.total.tolist())"
    assert [python(call, tmp_path) for _ in range(2)] == ["4 2 6\n"] * 2
    assert python(call, tmp_path, NUMBA_DISABLE_JIT="1") == "4 2 6\n"


_UNTESTED = """
import os, sys, numba
numba.__version__ = os.environ["NUMBA_RELEASE"]
from mine import state, total
from weft.jit import address_of, cache_folder
print(total(state, 2), *state.records.total.tolist(), sum(total.stats.cache_hits.values()))
print(address_of(total, numba.int64(numba.typeof(state), numba.int64), "the total") != 0)
print(total.stats.cache_path.startswith(str(cache_folder("mine"))))
print(*{"weft.jit.cache", "weft.jit.dispatcher", "weft.jit.inner"} & sys.modules.keys())
"""


@pytest.mark.parametrize("release", ["0.62.1", "0.69.0", "1.0.0rc1"])
def test_kernels_of_a_numba_that_was_not_tested_use_its_public_interface_alone(tmp_path, release):
    (tmp_path / "mine.py").write_text(_STATE)
    for hits in (0, 1):
        output = python(_UNTESTED, tmp_path, NUMBA_RELEASE=release).splitlines()
        assert output == [f"4 2 6 {hits}", "True", "True", ""]


def test_a_field_that_a_state_lacks_is_an_error_of_the_compiler(tmp_path):
    (tmp_path / "mine.py").write_text(_STATE)
    call = """
        import mine, numba
        try:
            mine.lacks(mine.state)
        except numba.core.errors.TypingError as error:
            print("absent" in str(error))
    """
    assert python(textwrap.dedent(call), tmp_path) == "True\n"


def test_llvm_removes_the_arguments_that_a_part_does_not_read(tmp_path):
    """Numba passes three arrays as 23 words; LLVM cannot inline a part that calls itself."""
    (tmp_path / "mine.py").write_text(_STATE)
    call = """
        import mine, re
        print(mine.fold(mine.state, 3))
        code = next(iter(mine.fold.overloads.values())).library.get_llvm_str()
        (takes,) = re.findall(r"define internal [^@]*@\\w*fold_part[^(]*\\((.*)\\)", code)
        print(takes.count(",") < 8)
    """
    assert python(textwrap.dedent(call), tmp_path).split() == ["15", "True"]


def test_a_kernel_that_hashes_finds_the_secret_that_numba_keeps_for_it(tmp_path):
    (tmp_path / "mine.py").write_text(_MODULE)
    call = (
        "import mine; print(mine.hashed() == hash('more than sixteen letters'), "
        "sum(mine.hashed.stats.cache_hits.values()))"
    )
    assert [python(call, tmp_path).split() for _ in range(2)] == [["True", "0"], ["True", "1"]]


@pytest.mark.skipif(compiler.find() is None, reason="no C compiler")
def test_a_linked_kernel_is_called_without_numba(tmp_path):
    """Its result is written to the first argument. The object file needs no symbol of Python."""
    (tmp_path / "kernels.o").write_bytes(object_code({"lock": atomic.lock, "load": atomic.load}))
    library = tmp_path / "kernels.so"
    words = [compiler.find() or "cc", "-shared", "-nostdlib", "-Wl,-z,defs", "-o", library, tmp_path / "kernels.o"]
    subprocess.run(words, check=True)
    code = """if True:
        import ctypes, sys
        kernels, word, result, error = ctypes.CDLL(sys.argv[1]), ctypes.c_int64(0), ctypes.c_int64(0), ctypes.c_void_p()
        at = ctypes.c_int64(ctypes.addressof(word))
        assert kernels.lock(ctypes.byref(result), ctypes.byref(error), at, ctypes.c_int64(7)) == 0 and result.value == 1
        assert kernels.load(ctypes.byref(result), ctypes.byref(error), at) == 0 and result.value == word.value == 7
        assert kernels.lock(ctypes.byref(result), ctypes.byref(error), at, ctypes.c_int64(8)) == 0
        print(word.value, "numba" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code, library], capture_output=True, text=True, check=True)
    assert done.stdout == "7 False\n"


def test_lowest_bit_is_the_same_compiled_and_interpreted():
    compiled = numba.njit(lambda number: bits.lowest_bit(number))
    for number, expected in ((1, 0), (2, 1), (40, 3), (-1, 0), (1 << 62, 62), (0, 64)):
        assert compiled(number) == bits._lowest_bit_alone(number) == expected


def test_an_interpreted_kernel_is_called_by_its_address(monkeypatch):
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    addresses = [jit.kernel_address(function) for function in (len, sum)]
    assert [jit._interpret(address, [5, 7]) for address in addresses] == [2, 12]
