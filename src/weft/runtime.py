"""The one place that makes what other processes can reach: folders, unix sockets, shared memory.

    folder()                        $XDG_RUNTIME_DIR/weft, else /tmp/weft-UID: only its owner enters
    state_folder()                  $XDG_STATE_HOME/weft: what outlives a reboot
    Listener(path), dial(path)      the two ends of stream sockets
    pair()                          the same two ends, of this process
    Inbox(path), connect(path)      the two ends of datagrams
    abstract(name)                  a datagram socket of Linux's abstract kind, for ibsim's protocol and nothing else
    memory(name, size_bytes)        memory for who is given its file
    wait_ready(readers, ...)        whether a socket can be read or written; select() fails beyond descriptor 1,023

Trusted is who runs as the same user, and root. The kernel keeps others out of the folder; that whoever is at the other
end is trusted is asked again at every door, since a name alone proves nothing: anybody may take a name of the abstract
kind. Such a socket says of each datagram who sent it, and its reader asks `is_trusted`.

A socket in a folder outlives its process as a name that nobody answers to; the next one that wants it takes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import select
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from weft.errors import ConfigError

PATH_BYTES = 107  # of a unix socket
ROOT = 0
_STRUCT = struct.Struct("=iII")
CREDENTIALS_BYTES = socket.CMSG_SPACE(_STRUCT.size)  # for recvmsg
_UID = slice(4, 8)
_BACKLOG = 128
_TURN_S = 2e-3  # between two tries to be let in
_PR_SET_PTRACER, _ANY_PROCESS = 0x59616D61, (1 << 64) - 1


class _Socket(Protocol):
    def fileno(self) -> int: ...


HasFileno = int | _Socket


class Credentials(NamedTuple):
    """By the kernel; `pid` is 0 if it lives where we cannot see it."""

    pid: int
    uid: int
    gid: int


_NOBODY = Credentials(0, 0xFFFF_FFFF, 0xFFFF_FFFF)


def is_trusted(who: Credentials) -> bool:
    return who.uid in (os.geteuid(), ROOT)


# -- folders ----------------------------------------------------------------------------------------------------------


def folder() -> Path:
    """Whoever may write there may command the labs."""
    named = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(named) if named and Path(named).is_dir() else None
    if base is not None:
        facts = base.stat()
        others_write = facts.st_mode & 0o022 and not facts.st_mode & stat.S_ISVTX
        if facts.st_uid not in (os.geteuid(), ROOT) or others_write:
            raise ConfigError(f"XDG_RUNTIME_DIR={base} can be changed by others: unset it, or name a folder of yours")
    return private_folder(base / "weft" if base is not None else Path(f"/tmp/weft-{os.geteuid()}"))


def state_folder() -> Path:
    """Return the folder for files that outlive a reboot; it may not exist yet."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "weft"


def private_folder(path: Path) -> Path:
    """Made if it is not there; ConfigError if anybody but its owner may enter."""
    path.mkdir(mode=0o700, exist_ok=True)
    facts = path.lstat()
    if facts.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} belongs to user {facts.st_uid}: set XDG_RUNTIME_DIR to an existing folder of yours, "
            f"for example XDG_RUNTIME_DIR=$HOME, or have root remove {path}"
        )
    if not stat.S_ISDIR(facts.st_mode) or facts.st_mode & 0o077:
        raise ConfigError(f"{path} must be a folder of yours that nobody else may use: remove it, or chmod 700")
    return path


def is_alive(path: Path | bytes) -> bool:
    """Has a process the socket at this path, or of this name? It is not disturbed, and need not answer.

    A datagram socket cannot be connected to a stream, and is told so without anybody being asked.
    """
    with _new(socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path if isinstance(path, bytes) else _name(path))
        except OSError as error:
            return error.errno not in (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTDIR)
    return True


def clear(place: Path) -> None:
    """Take away names in a folder that killed processes have left."""
    with alone(place):
        for path in place.iterdir():
            if path.is_socket() and not is_alive(path):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def alone(place: Path) -> Iterator[None]:
    """Of all processes only one at a time is in here: who decides that a name is nobody's, or changes files."""
    opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


# -- sockets ----------------------------------------------------------------------------------------------------------


def _new(kind: int) -> socket.socket:
    return socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def _name(path: Path) -> str:
    if len(os.fsencode(path)) > PATH_BYTES:
        raise ConfigError(f"{path} is too long for a socket: set XDG_RUNTIME_DIR to a shorter folder")
    return str(path)


def _bind(made: socket.socket, path: Path) -> os.stat_result:
    """What is at the path now. OSError (EADDRINUSE) if a living process has the name."""
    os.fchmod(made.fileno(), 0o600)  # of the name that `bind` makes
    with alone(path.parent):
        if path.is_socket() and not is_alive(path):
            path.unlink(missing_ok=True)
        made.bind(_name(path))
        return os.stat(path)


def _take_away(path: Path, bound: os.stat_result) -> None:
    """Somebody may have taken away the folder, and another have made it again with a socket of the same name."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.stat(path), bound):
            path.unlink()


class Listener:
    """A stream socket at a path, which it makes and takes away again."""

    def __init__(self, path: Path) -> None:
        self.path, self._process = path, os.getpid()
        self._socket = _new(socket.SOCK_STREAM)
        self._spare = -1
        try:
            self._bound = _bind(self._socket, path)
            self._socket.listen(_BACKLOG)
        except BaseException:
            self._socket.close()
            raise
        self._save()

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> socket.socket | None:
        """Who waits, without waiting; None if nobody does, or who does is not let in."""
        try:
            made, _ = self._socket.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._send_away()
            return None
        if not is_trusted(peer(made)):
            made.close()
            return None
        made.setblocking(False)
        return made

    def _save(self) -> None:
        """A file that can be given up when there are no more."""
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _send_away(self) -> None:
        """No file is free: who waits hears so now. Else it would wait, and the socket be ready, for ever."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
            with contextlib.suppress(OSError):
                self._socket.accept()[0].close()
        self._save()

    def close(self) -> None:
        """A process that was forked closes only its own copy."""
        if self._process == os.getpid() and self.fileno() >= 0:
            _take_away(self.path, self._bound)
        self._socket.close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1


def dial(path: Path, patience_s: float | None) -> socket.socket:
    """To a Listener; the socket waits as long as this for what it does. OSError if it is not let in."""
    made = _new(socket.SOCK_STREAM)
    try:
        made.settimeout(patience_s)
        _enter(made, path, patience_s)
        if not is_trusted(peer(made)):
            raise PermissionError(errno.EACCES, f"{path} belongs to user {peer(made).uid}")
    except BaseException:
        made.close()
        raise
    return made


def _enter(made: socket.socket, path: Path, patience_s: float | None) -> None:
    """Where as many wait as may, the kernel sends away who would wait for some time only: it comes again."""
    until_s = time.monotonic() + (patience_s or 0.0)
    while True:
        try:
            return made.connect(_name(path))
        except BlockingIOError:
            if time.monotonic() >= until_s:
                raise TimeoutError(errno.ETIMEDOUT, f"{_BACKLOG} wait to be let in at {path}, and none is") from None
            time.sleep(_TURN_S)


def pair() -> tuple[socket.socket, socket.socket]:
    """A stream that no path leads to."""
    made = socket.socketpair()
    for end in made:
        end.setblocking(False)
    return made


def wait_ready(readers: Iterable[HasFileno], writers: Iterable[HasFileno] = (), timeout_s: float = 0.0) -> bool:
    """Wait until one of these can be read or written, or has ended; return whether one is ready."""
    events: dict[int, int] = {}
    for things, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
        for thing in things:
            number = thing if isinstance(thing, int) else thing.fileno()
            events[number] = events.get(number, 0) | event
    poller = select.poll()
    for number, event in events.items():
        poller.register(number, event)
    return bool(poller.poll(timeout_s * 1e3))


class Inbox:
    """Datagrams of anybody come in at a path, with who sent them. OSError if another process has the path."""

    def __init__(self, path: Path) -> None:
        self.path, self._process = path, os.getpid()
        self.socket = _new(socket.SOCK_DGRAM)
        try:
            ask_senders(self.socket)
            self._bound = _bind(self.socket, path)
        except BaseException:
            self.socket.close()
            raise

    def close(self) -> None:
        """A process that was forked closes only its own copy."""
        if self._process == os.getpid() and self.socket.fileno() >= 0:
            _take_away(self.path, self._bound)
        self.socket.close()


def connect(path: Path) -> socket.socket:
    """Datagrams go there. OSError if nobody has the path."""
    made = _new(socket.SOCK_DGRAM)
    try:
        made.connect(_name(path))
    except BaseException:
        made.close()
        raise
    return made


def abstract(name: bytes, to: bytes = b"") -> socket.socket:
    """Datagrams of anybody come in here, with who sent them; with `to`, of the socket of that name alone.

    First connected, then bound: so there is no moment in which another could send to it.
    """
    made = _new(socket.SOCK_DGRAM)
    try:
        if to:
            made.connect(to)
        made.bind(name)
        ask_senders(made)
    except BaseException:
        made.close()
        raise
    return made


def peer(connection: socket.socket) -> Credentials:
    """Of who is at the other end of a stream, or was when it was made."""
    return Credentials(*_STRUCT.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _STRUCT.size)))


def sender(ancillary: Sequence[tuple[int, int, bytes]]) -> Credentials:
    """Of a datagram, from what `recvmsg` returns with it; nobody's if it does not say."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return Credentials(*_STRUCT.unpack_from(data))
    return _NOBODY


def ask_senders(made: socket.socket, *, wanted: bool = True) -> None:
    """Whether each datagram comes with who sent it."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, wanted)


def first_sender(made: socket.socket) -> Credentials:
    """Of what waits at a socket of `abstract` that is connected: no other can ever send there, so it is asked once."""
    _, ancillary, _, _ = made.recvmsg(1, CREDENTIALS_BYTES, socket.MSG_PEEK)
    ask_senders(made, wanted=False)  # it costs a tenth of a MAD
    return sender(ancillary)


def is_from_trusted(ancillary: Sequence[tuple[int, int, bytes]]) -> bool:
    """`is_trusted` of the sender, where there are many datagrams; only credentials come with them."""
    return bool(ancillary) and ancillary[0][2][_UID] in _trusted(os.geteuid())


@functools.cache
def _trusted(uid: int) -> frozenset[bytes]:
    return frozenset(one.to_bytes(4, sys.byteorder) for one in (uid, ROOT))


def allow_tracing(guests: Sequence[socket.socket]) -> None:
    """Let the processes at the other ends of streams, and none but them, read and write this one's memory.

    Where Linux gives that to ancestors alone (Yama, ptrace_scope 1) a process can name one more. With two or more
    guests it is any process of the same user, as it is where nothing is restricted.
    """
    allowed = {peer(one).pid for one in guests}
    who = allowed.pop() if len(allowed) == 1 else _ANY_PROCESS if allowed else 0
    libc().prctl(_PR_SET_PTRACER, ctypes.c_ulong(who), 0, 0, 0)  # EINVAL where nothing is restricted


@functools.cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


# -- memory -----------------------------------------------------------------------------------------------------------


def memory(name: str, size_bytes: int) -> int:
    """A file that no path leads to: who shall have it is sent it. Nobody can make it smaller under another's feet."""
    made = os.memfd_create(f"weft-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(made, 0o600)
        os.ftruncate(made, size_bytes)
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(made)
        raise
    return made
