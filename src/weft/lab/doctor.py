"""Check this machine: the software and permissions that weft can use, what is missing, and problems.

findings()       a line for each library, permission and program: good, missing or bad

Missing is what some commands or tests would use and do without; bad is what will make something fail.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from weft import jit, runtime
from weft.errors import EXTRA_OF, ConfigError
from weft.lab import programs, registry
from weft.units import format_items

State = Literal["good", "missing", "bad"]
LIBRARIES = ("numpy", "numba", "llvmlite", "cyclopts", "rich", "msgspec")
# Optional package, its purpose.
OPTIONAL = (
    ("matplotlib", "PNG, PDF and plots"),
    ("fastapi", "`weft serve`"),
    ("sqlalchemy", "`weft serve` and `weft follow`"),
)
# Program, what it is for.
PEERS = (
    ("opensm", "manages labs in place of weft's subnet manager"),
    ("ibsim", "labs that programs know by its sockets"),
    ("ibnetdiscover", "infiniband-diags, run on labs by `weft exec`"),
    ("ibdmchk", "a second proof of routes"),
    ("tshark", "reads packets that weft writes"),
    ("slurmctld", "reads topologies that weft writes"),
    ("chromium", "displays pages that weft writes"),
    ("prometheus", "scrapes the metrics of `weft monitor`"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    state: State
    words: str


def findings() -> list[Finding]:
    machine = [_kernels(), _runtime_folder(), *_labs(), _other_memory(), _own_sysfs()]
    return [*_versions(), *_other_weft(), *machine, *_peers()]


def _versions() -> Iterator[Finding]:
    yield Finding(
        "Python",
        "good",
        f"{platform.python_version()} on {platform.machine()}, {format_items(os.cpu_count() or 1, 'core')}",
    )
    for name in LIBRARIES:
        is_slow = name == "numba" and not jit.IS_TESTED
        note = ": weft was not tested with it, so kernels compile more slowly" if is_slow else ""
        yield Finding(name, "good", metadata.version(name) + note)
    for name, purpose in OPTIONAL:
        try:
            yield Finding(name, "good", metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(name, "missing", f"{purpose}: pip install 'weft-fabric[{EXTRA_OF[name]}]'")


def _other_weft() -> Iterator[Finding]:
    """Report the unrelated project `weft`, whose module and command have the same names as ours."""
    for other in metadata.distributions(name="weft"):
        way_out = "`pip uninstall weft`, then install weft-fabric again"
        yield Finding("another weft", "bad", f"weft {other.version} is another project with the same files: {way_out}")


def _kernels() -> Finding:
    """Check the kernel cache: without it every command compiles them again."""
    folder = jit.cache_folder("weft.sim.packet.loop").parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        way_out = "set XDG_CACHE_HOME to a folder of yours, else every command compiles its kernels again"
        return Finding("kernel cache", "bad", f"{folder}: {error.strerror}; {way_out}")
    compiled = {path.parent for path in folder.glob("*/*.nbi")}
    return Finding("kernel cache", "good", f"{folder}: kernels of {format_items(len(compiled), 'module')}")


def _runtime_folder() -> Finding:
    try:
        return Finding("runtime folder", "good", f"{runtime.folder()}: yours alone")
    except ConfigError as error:
        return Finding("runtime folder", "bad", str(error))


def _labs() -> Iterator[Finding]:
    try:
        folder = runtime.folder()
    except ConfigError:
        return  # said already
    alive = {entry.name for entry in registry.running()}
    for name in sorted({path.stem for path in folder.glob("*.sock") if path.with_suffix(".lock").exists()} | alive):
        if name in alive:
            yield Finding(f"lab {name}", "good", f"runs; `weft down --lab {name}` ends it")
        else:
            yield Finding(f"lab {name}", "missing", f"was killed; its log is {folder / name}.log, its name is free")


def _other_memory() -> Finding:
    """Check ptrace's rules, which apply to requests to memory that a program registered itself."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    value = scope.read_text().strip() if scope.exists() else "0"
    if value in ("0", "1"):  # 1: weft's processes allow each other
        return Finding("memory of other processes", "good", f"ptrace_scope {value}")
    way_out = "RDMA to a program's own memory goes as packets; `sysctl kernel.yama.ptrace_scope=1` makes it direct"
    return Finding("memory of other processes", "missing", f"ptrace_scope {value}: {way_out}")


def _own_sysfs() -> Finding:
    done = programs.run(["true"], {"PATH": os.environ.get("PATH", os.defpath)}, {"files": {}, "links": {}})
    if done.returncode == 0:
        return Finding("a /sys for hosts", "good", "`weft exec --sysfs` shows programs their adapters")
    return Finding("a /sys for hosts", "missing", done.stderr.splitlines()[0].removeprefix("weft: "))


def _peers() -> Iterator[Finding]:
    for program, use in PEERS:
        path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
        if path:
            yield Finding(program, "good", path)
        else:
            yield Finding(program, "missing", f"{use}; `make peers` installs it on Debian")
