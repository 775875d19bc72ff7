"""Test the tests: change one place of the source at a time, and list the changes that no test notices.

    python -m tests.mutate sm --sample 40 --seed 1
    python -m tests.mutate src/weft/sm/ucast/lids.py

Each mutant is made in a copy of `src`, so the working tree never has one. It changes an operator, a
number or a condition, or drops an error or an assignment. The package's own tests run once without a mutant, to record
the functions that each test calls. Then each mutant runs the tests that call its function, those that call the fewest
functions first, until one fails, and then the rest of their files. If no test calls the function, the test files that
import its module run. Mutants of Numba kernels run interpreted: compiling those of the packet simulator takes 80 s.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest
from tests import call_recorder
from tests.import_graph import ROOT, ImportGraph, module_name
from tests.mutants import FunctionNode, Mutant, find_function, find_mutants, is_kernel

from weft.jit.sources import sources as sources_of

_WALL_LIMIT_S = 600  # for the tests of a mutant
_AFRESH_CPU_S = 150  # the same in a new process, which imports and collects first
_INTERPRETED_S = 3  # CPU time for a test of kernels, interpreted; those that take longer do not run
_INTERPRETED = "NUMBA_DISABLE_JIT"
_SHARED = ("conformance", "crosscheck", "physics")  # folders with tests of several packages
_NEEDS_IMPORT = 2  # exit status


class Outcome(StrEnum):
    """The result of the tests of a mutant."""

    KILLED = "killed"  # a test failed
    SURVIVED = "survived"
    TIMED_OUT = "timed out"  # no test failed within the limits of time


def outcome_of(status: int) -> Outcome:
    """Return the outcome that an exit status stands for; `fork` and the limit of CPU time end processes by signals."""
    if status in (-signal.SIGKILL, -signal.SIGXCPU):
        return Outcome.TIMED_OUT
    return Outcome.SURVIVED if status in (0, pytest.ExitCode.NO_TESTS_COLLECTED) else Outcome.KILLED


# -- which tests -------------------------------------------------------------------------------------------------------


class CallRecord:
    """The functions that each test calls, and the CPU time that it takes."""

    def __init__(self, lines: Iterable[str], limit_s: float = 20) -> None:
        self._limit_s = limit_s  # for the tests of a mutant
        self._calls: dict[str, set[str]] = defaultdict(set)  # by test
        self._set_up: dict[str, set[str]] = defaultdict(set)  # by test file: its tests share fixtures
        self.cpu_s: dict[str, float] = {}  # by test that passes
        for kind, test, value in (line.split("\t") for line in lines):
            if kind == "passed":
                self.cpu_s[test] = float(value)
            elif kind != "failed":
                self._calls[test].add(value)
                if kind == "setup":
                    self._set_up[_file_of(test)].add(value)

    def tests_of(self, path: Path, line: int | None) -> list[str]:
        """Return the tests that call a function of a file, those that call the fewest functions first.

        Without a line, these are the tests that call any function of the file. The rest of their test files follow.
        """
        sizes = {
            test: len(places)
            for test, places in self._calls.items()
            if test in self.cpu_s and _holds(places | self._set_up[_file_of(test)], path, line)
        }
        smallest: dict[str, int] = {}  # by test file
        for test, size in sizes.items():
            smallest[_file_of(test)] = min(size, smallest.get(_file_of(test), size))
        calling = sorted(sizes, key=lambda test: (smallest[_file_of(test)], _file_of(test), sizes[test], test))
        rest = [test for test in self.cpu_s if _file_of(test) in smallest and test not in sizes]
        chosen, left_s = calling[:1], self._limit_s - sum(self.cpu_s[test] for test in calling[:1])
        for test in calling[1:] + rest:
            if self.cpu_s[test] <= left_s:
                chosen.append(test)
                left_s -= self.cpu_s[test]
        return chosen


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _holds(places: set[str], path: Path, line: int | None) -> bool:
    if line is not None:
        return f"{path}:{line}" in places
    return any(place.startswith(f"{path}:") for place in places)


# -- running -----------------------------------------------------------------------------------------------------------


def patch_functions(path: Path, source: bytes) -> bool:
    """Give the functions that a file defines the code of a changed source; return whether all can have it."""
    gc.unfreeze()  # tests/conftest.py freezes objects, which hides them
    patched = False
    codes: dict[tuple[str, int], CodeType] = {}
    todo = [compile(source, str(path), "exec")]
    for code in todo:
        codes[code.co_qualname, code.co_firstlineno] = code
        todo += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename == str(path):
            code = codes.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if code is None or code.co_freevars != function.__code__.co_freevars:
                return False
            function.__code__ = code
            patched = True
    return patched


def fork(work: Callable[[], int], cpu_limit_s: float, wall_limit_s: float = _WALL_LIMIT_S) -> int:
    """Return the exit status of a function in a child process with a time limit, and kill all that it leaves."""
    if not (child := os.fork()):
        status = 1
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_limit_s) + 1, resource.RLIM_INFINITY))
            status = work()
        finally:
            os._exit(status)
    deadline = time.monotonic() + wall_limit_s
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(ended[1] if ended[0] else os.waitpid(child, 0)[1])


class MutantRuns:
    """A plugin of pytest that runs the collected tests once to record their calls, then some of them for each mutant.

    Each run is a fork of this process, which has imported the sources and the tests but run none of them.
    """

    def __init__(
        self,
        mutants: Sequence[Mutant],
        sources: Path,
        graph: ImportGraph,
        limit_s: float,
        report: Callable[[str], None],
    ) -> None:
        self._limit_s = limit_s
        self._mutants, self._sources, self._graph, self._report = mutants, sources, graph, report
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure, and stop the timer of `_record`."""
        self._failed |= report.failed
        if report.when != "setup":
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the mutants instead of the tests."""
        self._items = {item.nodeid: item for item in session.items}
        record_file = self._sources / "calls"
        record_file.touch()
        os.environ[call_recorder.RECORD] = str(record_file)
        fork(self._record, cpu_limit_s=3600, wall_limit_s=7200)
        del os.environ[call_recorder.RECORD]
        self._record_of_calls = CallRecord(record_file.read_text().splitlines(), self._limit_s)
        left_out = sorted(self._items.keys() - self._record_of_calls.cpu_s.keys())
        if _INTERPRETED in os.environ:
            self._report(f"kernels, interpreted: {len(left_out)} of {len(self._items)} tests take too long or fail")
        else:
            for test in left_out:
                self._report(f"{test} fails without a mutant and is left out")
        outcomes: Counter[Outcome] = Counter()
        for mutant in self._mutants:
            copy = self._sources / mutant.path.relative_to(ROOT / "src")
            original = copy.read_bytes()
            copy.write_bytes(mutant.apply(original))
            outcome = self._test(mutant, copy, find_function(original, mutant.line))
            outcomes[outcome] += 1
            if outcome is not Outcome.KILLED:
                self._report(f"{outcome}: {mutant.describe(original)}")
            copy.write_bytes(original)
        counts = ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in Outcome)
        self._report(f"{len(self._mutants)} mutants run, {counts}")
        return True

    def _record(self) -> int:
        signal.signal(signal.SIGVTALRM, _fail_slow_test)
        for item, following in zip(self._items.values(), [*list(self._items.values())[1:], None], strict=True):
            self._failed, start_s = False, time.process_time()
            if sys.gettrace() is None:  # Python removes it if a signal interrupts it
                call_recorder.start()
            if _INTERPRETED in os.environ:  # repeatedly: Python ignores an exception in a destructor
                signal.setitimer(signal.ITIMER_VIRTUAL, _INTERPRETED_S, 0.5)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            call_recorder.append(
                "failed" if self._failed else "passed", item.nodeid, f"{time.process_time() - start_s}"
            )
        return 0

    def _test(self, mutant: Mutant, copy: Path, function: FunctionNode | None) -> Outcome:
        line = function and min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
        record = self._record_of_calls
        tests = record.tests_of(copy, line)
        if not tests or line is None:  # at an import, in a kernel, whose calls are not recorded, or by other packages
            files = set(self._graph.tests_of(mutant.path))
            importing = [test for test in record.cpu_s if self._items[test].path in files]
            tests = record.tests_of(copy, None) or importing
            return _run_afresh(tests) if tests else Outcome.SURVIVED
        cpu_limit_s = 10 + 5 * sum(record.cpu_s[test] for test in tests)
        status = fork(lambda: self._run_patched(copy, [self._items[test] for test in tests]), cpu_limit_s)
        return _run_afresh(tests) if status == _NEEDS_IMPORT else outcome_of(status)

    def _run_patched(self, copy: Path, items: list[pytest.Item]) -> int:
        if not patch_functions(copy, copy.read_bytes()):
            return _NEEDS_IMPORT
        self._failed = False
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return 1
        return 0


def _fail_slow_test(_number: int, _frame: FrameType | None) -> None:
    pytest.fail("takes too long")


def as_compiled() -> list[str]:
    """Return options for tests of interpreted kernels: NumPy warns of divisions by 0 and overflows, Numba does not."""
    return ["-W", "ignore::RuntimeWarning"] if _INTERPRETED in os.environ else []


def _run_afresh(tests: Iterable[str]) -> Outcome:
    """Return the outcome of tests in a new process: a change outside functions needs a new import."""
    options = ["-q", "-x", "-p", "no:cacheprovider", *as_compiled(), "-m", "not slow"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    null = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=ROOT, stdout=null, stderr=null, start_new_session=True) as process:
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (_AFRESH_CPU_S, resource.RLIM_INFINITY))
        try:
            return outcome_of(process.wait(_WALL_LIMIT_S))
        except subprocess.TimeoutExpired:
            return Outcome.TIMED_OUT
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def list_sources(target: str) -> list[Path]:
    """Return the files of a package ("sm"), or of a path."""
    path = (ROOT / target if "/" in target or target.endswith(".py") else ROOT / "src/weft" / target).resolve()
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    if not files:
        sys.exit(f"{target}: no such package; give the name of a folder in src/weft, or a path")
    return files


def select_mutants(mutants: Iterable[Mutant], files: Iterable[Path], *, in_kernels: bool) -> list[Mutant]:
    """Return the mutants that change code of kernels, or all others.

    A line outside functions belongs to kernels if a module with kernels imports its module.
    """
    texts = {path: path.read_bytes() for path in files}
    with_kernels = (module_name(path) for path, text in texts.items() if b"from weft.jit import" in text)
    imported = {name for module in with_kernels for name in sources_of(module)}

    def is_in_kernel(mutant: Mutant) -> bool:
        function = find_function(texts[mutant.path], mutant.line)
        return is_kernel(function) if function else module_name(mutant.path) in imported

    return [mutant for mutant in mutants if is_in_kernel(mutant) == in_kernels]


def choose_mutants(files: Iterable[Path], options: argparse.Namespace, *, in_kernels: bool) -> list[Mutant]:
    """Return the part of a random sample that changes kernels, or all else; with `--only` the sample is of one part."""
    files = list(files)
    mutants = [mutant for path in files for mutant in find_mutants(path)]
    if options.only:
        mutants = select_mutants(mutants, files, in_kernels=in_kernels)
    if 0 < options.sample < len(mutants):
        mutants = sorted(random.Random(options.seed).sample(mutants, options.sample))
    return select_mutants(mutants, files, in_kernels=in_kernels)


def run_mutants(options: argparse.Namespace, sources: Path) -> None:
    """Run a sample of the mutants of packages or files in this process, which imports weft from a copy of `src`."""
    files = [path for target in options.targets for path in list_sources(target)]
    mutants = choose_mutants(files, options, in_kernels=_INTERPRETED in os.environ)
    if not mutants:
        return
    package = files[0].relative_to(ROOT / "src/weft").parts[0].removesuffix(".py")
    folder, graph = ROOT / "tests" / package, ImportGraph()
    of_files = {test for path in files for test in graph.tests_of(path)}
    own = [folder] if folder.is_dir() else []
    tests = options.tests or [*own, *sorted(test for test in of_files if not own or test.parent.name in _SHARED)]
    os.environ[call_recorder.SOURCES] = str(sources / "weft" / package)
    output = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for pytest
    runs = MutantRuns(mutants, sources, graph, options.limit_s, lambda line: print(line, file=output, flush=True))
    imported_already = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"  # weft.testing is a plugin
    arguments = ["-p", "no:cacheprovider", "-W", imported_already, *as_compiled(), "-m", "not slow"]
    pytest.main([*arguments, *map(str, tests)], [runs])


def main() -> int:
    """Print the mutants that survive."""
    parser = argparse.ArgumentParser(description="List changes of the source that no test notices.")
    parser.add_argument("targets", nargs="+", help="a package such as sm, or paths such as src/weft/sm/ucast/lids.py")
    parser.add_argument("--tests", nargs="+", help="test files to run instead of the package's test folder")
    parser.add_argument("--only", choices=("functions", "kernels"), help="kernels alone, or everything else")
    parser.add_argument("--sample", type=int, default=40, help="number of mutants to run (0: all)")
    parser.add_argument("--limit-s", type=float, default=20, help="CPU time of the tests that a mutant runs")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the sample")
    options = parser.parse_args()
    if call_recorder.SOURCES in os.environ:
        run_mutants(options, Path(os.environ[call_recorder.SOURCES]))
        return 0
    with tempfile.TemporaryDirectory(prefix="weft-mutate-") as sources:
        shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        shutil.copy(call_recorder.__file__, Path(sources) / "sitecustomize.py")
        variables = {"PYTHONPATH": sources, "PYTHONDONTWRITEBYTECODE": "1", call_recorder.SOURCES: sources}
        variables["NUMBA_BOUNDSCHECK"] = "1"  # as tests/conftest.py sets it: numba is imported before
        command = [sys.executable, "-m", "tests.mutate", *sys.argv[1:]]
        return any(
            subprocess.run(command, cwd=ROOT, env=os.environ | variables | mode, check=False).returncode
            for part, mode in (("functions", {}), ("kernels", {_INTERPRETED: "1"}))
            if options.only in (None, part)
        )


if __name__ == "__main__":
    sys.exit(main())
