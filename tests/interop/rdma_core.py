"""Run rdma-core's own Python tests, unmodified, with weft as pyverbs.

    python tests/interop/rdma_core.py [-v] [name, or part of one, ...]

With `--real` pyverbs is rdma-core's own, on weft's libibverbs, in any Python that has it installed.

Last line: `N passed, N failed, N skipped`. Cases of one vendor's adapters (mlx5, EFA) are left out. The tests come with
Debian's rdma-core package as documentation; this program finds them where `make peers` puts them, or in
$WEFT_RDMA_CORE_TESTS. They read a folder in place of /sys, with the files that a kernel would show for weft's adapters.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

CASE_LIMIT_S = 300
SYSFS = "/sys/class/infiniband"
VENDORS = ("test_mlx5", "test_efa")


def peers_folder() -> Path:
    """Return the folder into which `make peers` unpacks packages that it does not install."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft" / "peers"


def find_tests() -> Path | None:
    """Return the folder of rdma-core's tests, or None."""
    documentation = "usr/share/doc/rdma-core/tests"
    named = os.environ.get("WEFT_RDMA_CORE_TESTS")
    for folder in [Path(named)] if named else [peers_folder() / documentation, Path("/") / documentation]:
        if any(folder.glob("test_qp.py*")):
            return folder
    return None


def unpack(source: Path, target: Path) -> Path:
    """Copy the tests, decompressed, and return the new folder."""
    target.mkdir()
    for path in sorted(source.glob("*.py*")):
        if path.suffix == ".gz":
            (target / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.suffix == ".py":
            shutil.copy(path, target)
    return target


class Kernel:
    """A stand-in for the kernel: weft's adapters in /sys/class/infiniband and in the output of `rdma` and `ip`."""

    def __init__(self, folder: Path, devices: list[str]) -> None:
        self.folder, self.devices = folder, devices
        self.exists, self.check_output = os.path.exists, subprocess.check_output
        for device in devices:
            (folder / device / "device/net/lo").mkdir(parents=True)
            (folder / device / "ports/1/pkeys").mkdir(parents=True)
            (folder / device / "ports/1/pkeys/0").write_text("0xffff\n", encoding="ascii")
        os.path.exists = lambda path: self.exists(self.moved(path))
        subprocess.check_output = self.run

    def moved(self, path: Any) -> Any:
        text = str(path)
        return text.replace(SYSFS, str(self.folder)) if text.startswith(SYSFS) else path

    def run(self, command: Any, **options: Any) -> Any:
        if isinstance(command, list) and command[0] == "rdma":
            links = [{"ifname": device, "port": 1, "netdev": "lo"} for device in self.devices]
            return json.dumps(links).encode()
        if command == ["ip", "-j", "addr", "show", "lo"]:
            loopback = {"address": "00:00:00:00:00:00", "addr_info": [{"local": "127.0.0.1"}]}
            return json.dumps([loopback]).encode()
        if isinstance(command, str):
            return self.check_output(command.replace(SYSFS, str(self.folder)), **options)
        return self.check_output([self.moved(word) for word in command], **options)


class Outcomes(unittest.TestResult):
    """The outcome of each case, by its name; a case that takes too long is interrupted and has failed."""

    def __init__(self, *, is_verbose: bool) -> None:
        super().__init__()
        self.is_verbose = is_verbose
        self.failed: dict[str, str] = {}
        self.skipped_for: dict[str, str] = {}
        self.passed: set[str] = set()

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().startTest(test)
        signal.alarm(CASE_LIMIT_S)

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        signal.alarm(0)
        super().stopTest(test)
        if self.is_verbose:
            name = test.id()
            outcome = (self.failed.get(name) and "FAILED") or self.skipped_for.get(name) or "passed"
            print(f"{name}: {outcome}", file=sys.__stdout__, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self.passed.add(test.id())

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self.skipped_for[test.id()] = reason

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        self.failed[test.id()] = self.failures[-1][1]

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addError(test, err)
        self.failed[test.id()] = self.errors[-1][1]

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.failed[test.id()] = (self.failures + self.errors)[-1][1]

    def report(self) -> str:
        """Return the failures, then the reasons for skips, then the three counts."""
        out = io.StringIO()
        for name, trace in self.failed.items():
            out.write(f"FAILED {name}\n{trace}\n")
        for reason, count in Counter(self.skipped_for.values()).most_common():
            out.write(f"skipped {count:3}: {reason}\n")
        passed = self.passed - self.failed.keys() - self.skipped_for.keys()
        skipped = self.skipped_for.keys() - self.failed.keys()
        out.write(f"{len(passed)} passed, {len(self.failed)} failed, {len(skipped)} skipped")
        return out.getvalue()


def on_alarm(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"the case took more than {CASE_LIMIT_S} s")


def cases(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for item in suite:
        yield from cases(item) if isinstance(item, unittest.TestSuite) else [item]


def load(folder: Path) -> ModuleType:
    """Load the tests as rdma-core's run_tests.py does: the folder is the package `tests`, and its command line is
    read first.
    """
    sys.path[:0] = [str(folder), str(folder.parent)]
    sys.argv = ["run_tests.py"]
    from args_parser import parser

    parser.parse_args()
    import tests

    return tests


def main() -> int:
    options = argparse.ArgumentParser(description="rdma-core's own tests on weft")
    options.add_argument("names", nargs="*", help="run only cases that have one of these in their names")
    options.add_argument("-v", "--verbose", action="store_true", help="print every case")
    options.add_argument("--real", action="store_true", help="with the pyverbs of rdma-core, on weft's libibverbs")
    options.add_argument(
        "--shm", action="store_true", help="use shared memory from the first request on; XRC never does"
    )
    chosen = options.parse_args()
    source = find_tests()
    if source is None:
        print("rdma-core's tests are not here: make peers, or set WEFT_RDMA_CORE_TESTS", file=sys.stderr)
        return 2
    if not chosen.real:
        from weft.verbs import pyverbs
        from weft.verbs.hca import queue_pair

        pyverbs.install()
        if chosen.shm:
            queue_pair.SHM_PATH_AFTER = 0
    from pyverbs.device import get_device_list

    signal.signal(signal.SIGALRM, on_alarm)
    with tempfile.TemporaryDirectory(prefix="weft-rdma-core-") as temporary:
        folder = Path(temporary)
        Kernel(folder / "infiniband", [device.name.decode() for device in get_device_list()])
        package = load(unpack(source, folder / "tests"))
        result = [
            case
            for case in cases(unittest.defaultTestLoader.loadTestsFromModule(package))
            if not case.id().split(".")[1].startswith(VENDORS)
            and not (chosen.shm and "xrc" in case.id())
            and (not chosen.names or any(name in case.id() for name in chosen.names))
        ]
        outcomes = Outcomes(is_verbose=chosen.verbose)
        unittest.TestSuite(result).run(outcomes)
    print(outcomes.report())
    return 1 if outcomes.failed or not result else 0


if __name__ == "__main__":
    sys.exit(main())
