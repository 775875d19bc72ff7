"""Which labs run on this machine, for this user.

    runtime.folder()/
        NAME.lock       locked by the lab as long as it lives: the kernel lets go of it, even after kill -9
        NAME.sock       where it takes commands
        NAME.umad       where programs attach; NAME.verbs: those for RDMA
        NAME.token      by which other machines join it as hosts, if it lets any
        NAME.log        what it had to say; stays until the name is used again
        NAME.cache/     what OpenSM remembers of it, and what weft's subnet managers do: their states, the M_Key

A name is taken exactly while its lock is held; what a lab that was killed left behind is cleared by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from weft import runtime
from weft.errors import ConfigError, UnknownName

DEFAULT = "lab"
_DIAL_S = 0.2
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


@dataclass(frozen=True, slots=True)
class Entry:
    """The files of one lab."""

    name: str
    folder: Path

    @property
    def lock(self) -> Path:
        return self.folder / f"{self.name}.lock"

    @property
    def socket(self) -> Path:
        return self.folder / f"{self.name}.sock"

    @property
    def token(self) -> Path:
        return self.folder / f"{self.name}.token"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def cache(self) -> Path:
        return self.folder / f"{self.name}.cache"

    @property
    def m_key_file(self) -> Path:
        """The M_Key of all ports, once a subnet manager of weft's has made one; its owner alone can read it."""
        return self.cache / "m_key"

    def is_free(self) -> bool:
        """Return whether no lab holds the name."""
        with contextlib.suppress(BlockingIOError), self.lock.open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def answers(self) -> bool:
        """Return whether a process listens at the socket; send nothing, so that a busy lab causes no wait."""
        return runtime.is_alive(self.socket)

    def process(self) -> int | None:
        """Return the lab's process, also of a lab that is stopped; None if no process listens at the socket."""
        with contextlib.suppress(OSError), runtime.dial(self.socket, _DIAL_S) as line:
            return runtime.peer(line).pid
        return None


def entry(name: str) -> Entry:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a lab cannot be named {name!r}: up to 32 letters, digits, `.`, `_` and `-`, as in `lab-2`")
    return Entry(name, runtime.folder())


@contextlib.contextmanager
def claim(name: str) -> Iterator[Entry]:
    """Hold a name; ConfigError if another lab has it."""
    claimed = entry(name)
    with claimed.lock.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"a lab named {name} runs already: end it with `weft down --lab {name}`, or choose another with --name"
            ) from None
        _clear(claimed)
        runtime.private_folder(claimed.cache)
        try:
            yield claimed
        finally:
            _clear(claimed)


def _clear(claimed: Entry) -> None:
    claimed.socket.unlink(missing_ok=True)
    claimed.token.unlink(missing_ok=True)
    shutil.rmtree(claimed.cache, ignore_errors=True)


def running() -> list[Entry]:
    folder = runtime.folder()
    entries = [Entry(path.stem, folder) for path in sorted(folder.glob("*.lock"))]
    return [entry for entry in entries if entry.answers()]


def find(name: str = "") -> Entry:
    """Return the lab of a name, or the only one that runs."""
    entries = running()
    names = [entry.name for entry in entries]
    if name:
        if name not in names:
            raise UnknownName("running lab", name, names, "`weft ps` lists them, `weft up SPEC` starts one.")
        return entries[names.index(name)]
    if not entries:
        raise ConfigError("no lab runs: start one with `weft up fat-tree:hosts=16,radix=8`")
    if len(entries) > 1:
        raise ConfigError(f"{len(entries)} labs run, {', '.join(names)}: say which with --lab NAME")
    return entries[0]
