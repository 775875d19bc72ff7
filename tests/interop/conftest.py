"""Fixtures for the other programs against which tests check weft.

If such a program is missing, its tests are skipped with advice on how to install it; with CI=true they fail.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from tests.interop.ibdm import Ibdm, proof
from tests.patience import PATIENCE_S, wait_until

_NUMBER = itertools.count()


def find_peer(program: str) -> str:
    """Return the path of a program; Debian has some in /usr/sbin, which is not in every PATH."""
    result = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if result is None:
        do_without(program)
    return result


def find_module(name: str) -> None:
    """Skip the test if a Python package is missing."""
    if importlib.util.find_spec(name) is None:
        do_without(name)


def do_without(what: str) -> NoReturn:
    absent = f"{what} is not installed: make peers"
    if os.environ.get("CI") == "true":
        pytest.fail(absent)
    pytest.skip(absent)


@pytest.fixture(scope="session")
def peer() -> Callable[[str], str]:
    """Find a program, or skip the test."""
    return find_peer


class Ibsim:
    """A running ibsim and the programs on its subnet."""

    def __init__(self, net: str, folder: Path, *, nodes: int, switches: int, ports: int) -> None:
        self.folder = folder
        self.name = f"weft-{os.getpid()}-{next(_NUMBER)}"  # names its sockets: other ibsims may run at the same time
        (folder / "net").write_text(net, encoding="utf-8")
        sizes = ["-N", str(nodes), "-S", str(switches), "-P", str(ports)]
        with (folder / "ibsim.log").open("wb") as log:
            self.process = subprocess.Popen(
                [find_peer("ibsim"), "-s", "-n", *sizes, "net"],
                cwd=folder,
                env={**os.environ, "IBSIM_SOCKNAME": self.name},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait_until_up(self) -> None:
        """Wait until ibsim has read the net: it opens its sockets then."""
        wait_until(
            lambda: f"@{self.name}:ctl" in Path("/proc/net/unix").read_text(encoding="ascii", errors="replace"),
            lambda: f"{(self.folder / 'ibsim.log').read_text(errors='replace')[-2000:]}\nthat ibsim loads the net",
            lambda: self.process.poll() is None,
        )

    def run(self, program: str, *arguments: str, host: str, **environment: str) -> str:
        """Return the output of a program on a host of the simulated subnet, given by its id."""
        done = subprocess.run(
            [find_peer("ibsim-run"), find_peer(program), *arguments],
            cwd=self.folder,
            env={**os.environ, "IBSIM_SOCKNAME": self.name, "SIM_HOST": host, **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{program} failed: {done.stdout[-1000:]}{done.stderr[-1000:]}"
        return done.stdout

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=PATIENCE_S)


@pytest.fixture(scope="session")
def start_ibsim() -> Callable[[str, Path], Ibsim]:
    """Start ibsim with a net, in a folder; the caller stops it."""

    def start(net: str, folder: Path) -> Ibsim:
        lines = net.splitlines()
        heads = [line.split() for line in lines if line.startswith(("Switch\t", "Ca\t", "Hca\t", "Rt\t"))]
        ports = sum(int(head[1]) + 1 for head in heads)
        switches = sum(head[0] == "Switch" for head in heads)
        return Ibsim(net, folder, nodes=len(heads) + 1, switches=switches + 1, ports=ports + 1)

    return start


@pytest.fixture
def ibsim(start_ibsim, tmp_path) -> Iterator[Callable[[str], Ibsim]]:
    """Start ibsim with a net; it ends with the test."""
    running: list[Ibsim] = []

    def start(net: str) -> Ibsim:
        running.append(start_ibsim(net, tmp_path))
        running[-1].wait_until_up()
        return running[-1]

    yield start
    for item in running:
        item.stop()


@pytest.fixture
def opensm(ibsim, tmp_path) -> Callable[..., Path]:
    """Run OpenSM once over a net, from a host of it; returns the folder of its dumps."""

    def run(net: str, host: str, *arguments: str) -> Path:
        folder = tmp_path / "osm"
        folder.mkdir()
        where = {"OSM_CACHE_DIR": str(folder), "OSM_TMP_DIR": str(folder)}
        log = str(folder / "opensm.log")
        # 0xc3: errors, infos, routing (which writes the dumps) and system
        ibsim(net).run("opensm", "-o", "-f", log, "-D", "0xc3", "-d", "2", *arguments, host=host, **where)
        return folder

    return run


@pytest.fixture
def ibdmchk(tmp_path) -> Callable[[Path], str]:
    """Return ibdmchk's report of the dumps in a folder; it includes virtual lanes if their files exist."""

    def check(folder: Path) -> str:
        (tmp_path / "no-groups.mcfdbs").touch()
        files = ["-s", str(folder / "opensm-subnet.lst"), "-f", str(folder / "opensm.fdbs")]
        if (folder / "opensm.psl").exists():
            files += ["-c", str(folder / "opensm.psl"), "-d", str(folder / "opensm.slvl")]
        command = [find_peer("ibdmchk"), *files, "-m", "no-groups.mcfdbs"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        return done.stdout

    return check


@pytest.fixture
def ibdmsh(tmp_path) -> Callable[[Path], str]:
    """Return ibdmsh's report of the dumps in a folder: for large fabrics on one virtual lane, in half of the time."""

    def check(folder: Path) -> str:
        script = tmp_path / "proof.tcl"
        script.write_text(proof(folder / "opensm-subnet.lst", folder / "opensm.fdbs"))
        command = [find_peer("ibdmsh"), str(script)]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False).stdout

    return check


@pytest.fixture(scope="module")
def ibdm(tmp_path_factory) -> Ibdm:
    return Ibdm(find_peer("ibdmchk"), find_peer("ibdmsh"), tmp_path_factory.mktemp("ibdm"))
