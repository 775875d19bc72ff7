"""The library, compiled once by the user's C compiler and kept; and what a program needs to find it first."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from weft import compiler, user_cache
from weft.errors import ConfigError
from weft.verbs.carriers.roce.processor import crc_instructions

NAME, CM_NAME = "libibverbs.so.1", "librdmacm.so.1"
PRELOAD = "weft-devices.so"
_FLAGS = ("-O2", "-std=gnu11", "-D_GNU_SOURCE", "-fPIC", "-pthread", "-Wall", "-Werror=implicit")
_WRITTEN_FROM = (
    *("c/*.py", "c/*.c", "c/lib/*", "c/lib/cm/*", "enums/*.py", "hca/*.py", "shm/*.py", "hardware.py"),
    *("carriers/places.py", "carriers/*/device.py", "carriers/lab/connection.py"),
    *("carriers/roce/layout.py", "carriers/roce/processor.py", "carriers/roce/kernels/*.py"),
)
_KERNELS_FROM = ("compiler.py", "ids.py", "jit/*.py", "wire/*.py")
_SYSTEM = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
_PRIVATE = re.compile(rb"(?<=\0)IBVERBS_PRIVATE_\d+(?=\0)")
# Symbols that drivers of rdma-core import from libibverbs besides its public calls
_OF_DRIVERS = re.compile(rb"(?<=\0)(?:ibv_cmd_\w+|_*verbs_\w+|ibv_read_ibdev_sysfs_file|_*\w*ioctl\w*)(?=\0)")
_OURS = (b"ibv_query_gid_type", b"ibv_wr_opcode_str")


def folder(cache: Path | None = None) -> Path | None:
    """Return the folder of the library, compiled first if needed; None without a compiler or Linux."""
    if sys.platform != "linux":
        return None
    python, private, home = _python(), _private_names(), cache or user_cache.root()
    digest = hashlib.sha256(repr((python, sys.platform, sorted(crc_instructions()))).encode())
    for file in _files():
        digest.update(file.read_bytes())
    objects = home / f"verbs-objects-{os.uname().machine}-{digest.hexdigest()[:16]}"
    digest.update(repr(private).encode())
    library = home / f"verbs-{os.uname().machine}-{digest.hexdigest()[:16]}"
    if (library / NAME).is_file():
        return user_cache.mark_used(library)
    cc = compiler.find()
    if cc is None:
        return None
    compiling = user_cache.Announcer("compiling libibverbs for programs in C")
    compiling.begin()
    try:
        with user_cache.lock(objects):
            if not (library / NAME).is_file():  # else another process compiled it meanwhile
                _compile(cc, library, objects, python, private)
    finally:
        compiling.end()
    return library


def _files() -> list[Path]:
    verbs = Path(__file__).parent.parent
    patterns = [(verbs, pattern) for pattern in _WRITTEN_FROM]
    patterns += [(verbs.parent, pattern) for pattern in _KERNELS_FROM]
    return sorted(file for folder, pattern in patterns for file in folder.glob(pattern) if file.is_file())


def _compile(cc: str, library: Path, objects: Path, python: str, private: tuple[str, tuple[str, ...]]) -> None:
    """Compile, and link. Another libibverbs of the system has other private names, for which linking is enough."""
    from weft.verbs.c import kernels  # which need numba

    if not objects.is_dir():
        linked = kernels.compiled()
        _make(objects, lambda partial: _compile_in(partial, cc, python, linked))
    _make(library, lambda partial: _link_in(partial, user_cache.mark_used(objects), cc, private))


def _make(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder that is renamed when it is whole: other processes see nothing else."""
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        fill(partial)
        partial.chmod(0o755)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    user_cache.remove_unused(folder)


def _sources() -> Path:
    return Path(str(files("weft.verbs.c").joinpath("lib")))


def _compile_in(partial: Path, cc: str, python: str, kernels: bytes) -> None:
    from weft.verbs.c import header

    source = _sources()
    (partial / "weft_numbers.h").write_text(header.text(), encoding="utf-8")
    (partial / "weft_python.h").write_text(python, encoding="utf-8")
    headers = [f"-I{partial}", f"-I{source}"]
    for name, folder in (("verbs", source), ("cm", source / "cm")):
        (partial / name).mkdir()
        _run(cc, ["-c", *headers, *map(str, sorted(folder.glob("*.c")))], partial / name)
    (partial / "verbs" / "linked.o").write_bytes(kernels)


def _link_in(partial: Path, objects: Path, cc: str, private: tuple[str, tuple[str, ...]]) -> None:
    source = _sources()
    (partial / "drivers.c").write_text(_drivers_c(private[1]), encoding="utf-8")
    (partial / "exports.map").write_text((source / "exports.map").read_text("utf-8") + _node(*private), "utf-8")
    own, cm = (sorted(map(str, (objects / name).glob("*.o"))) for name in ("verbs", "cm"))
    _run(cc, [*_shared(partial / NAME, partial / "exports.map"), *own, str(partial / "drivers.c"), "-ldl"])
    _run(cc, [*_shared(partial / CM_NAME, source / "cm" / "exports.map"), *cm, str(partial / NAME), "-ldl"])
    (partial / NAME.removesuffix(".1")).symlink_to(NAME)  # which NCCL looks for first
    _run(cc, ["-shared", "-o", str(partial / PRELOAD), str(source.with_name("preload.c")), "-ldl"])


def _run(cc: str, words: Sequence[str], folder: Path | None = None) -> None:
    done = subprocess.run([cc, *_FLAGS, *words], capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        why = done.stderr.strip()[:2000]
        raise ConfigError(f"{cc} cannot compile weft's {NAME}: {why}\n  Set CC to a C compiler.")


def _shared(library: Path, exports: Path) -> list[str]:
    return ["-shared", "-o", str(library), f"-Wl,-soname,{library.name}", f"-Wl,--version-script={exports}"]


# -- Python ------------------------------------------------------------------------------------------------------------


def _python() -> str:
    """Return weft_python.h: which Python a program loads, and what it runs there.

    Of the Python path only what the adapter imports: the rest changes with each package, and with who starts it.
    """
    specs = [find_spec(name) for name in ("weft", "numpy", "numba", "llvmlite")]
    paths = sorted({str(Path(spec.origin).parent.parent) for spec in specs if spec is not None and spec.origin})
    begin = (
        f"sys = __import__('sys'); sys.path.extend([path for path in {paths!r} if path not in sys.path]); "
        "__import__('weft.verbs.c.start', fromlist=['start']).start("
    )
    begin = f"exec({begin + 'ADDRESS)'!r}, {{}})".replace("%", "%%").replace("ADDRESS", "%lu")
    defined = {
        "PYTHON_VERSION": f"{sys.version_info.major}.{sys.version_info.minor}.",
        "LIBPYTHON": _libpython(),
        "EXECUTABLE": sys.executable,
        "START": begin,
    }
    return "".join(f"#define WEFT_{name} {json.dumps(text)}\n" for name, text in defined.items())


def _libpython() -> str:
    """Return the libpython of this Python, or the system's of the same version; empty if there is none."""
    variables = sysconfig.get_config_vars("LIBDIR", "MULTIARCH", "INSTSONAME")
    folder_, multiarch, own = (text or "" for text in variables)
    places = Path(folder_), Path(folder_, multiarch), Path(sys.base_prefix, "lib"), Path("/usr/lib", multiarch)
    usual = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    for name in (own, usual) if ".so" in own else (usual,):
        for place in places:
            if (place / name).is_file():
                return str(place / name)
    return ""


# -- what is private to rdma-core --------------------------------------------------------------------------------------


def _private_names() -> tuple[str, tuple[str, ...]]:
    """Return the version node and names that drivers import from this system's libibverbs; programs link some of them.

    They are never called, because there are no driver devices here, but drivers do not load without them.
    """
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    for place in (*(f"{folder}/{multiarch}" for folder in _SYSTEM), *_SYSTEM):
        file = Path(place, NAME)
        if file.is_file():
            content = file.read_bytes()
            node = _PRIVATE.search(content)
            names = sorted(set(_OF_DRIVERS.findall(content)) - {b"ioctl"})
            return (node[0].decode(), tuple(name.decode() for name in names)) if node else ("", ())
    return "", ()


def _node(node: str, names: Sequence[str]) -> str:
    everything = " ".join(f"{name};" for name in (*names, *(name.decode() for name in _OURS)))
    return f"{node} {{ global: {everything} }};\n" if node else ""


def _drivers_c(names: Sequence[str]) -> str:
    begin = "#include <errno.h>\nstatic int refuse(void) { return EOPNOTSUPP; }\n"
    return begin + "".join(f'int {name}(void) __attribute__((alias("refuse")));\n' for name in names)
