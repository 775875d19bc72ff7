"""Folders, unix sockets and shared memory that other processes can reach: weft creates them only here.

    folder()                        $XDG_RUNTIME_DIR/weft, else /tmp/weft-UID: only its owner enters
    state_folder()                  $XDG_STATE_HOME/weft: files that outlive a reboot
    Listener(path), dial(path)      the two ends of stream sockets
    pair()                          both ends within this process
    Inbox(path), connect(path)      the two ends of datagram sockets
    abstract(name)                  a datagram socket with a Linux abstract name, only for ibsim's protocol
    memory(name, size_bytes)        memory for processes that receive its file descriptor
    wait_ready(readers, ...)        whether a socket can be read or written; select() fails beyond descriptor 1,023

Only processes of the same user and of root are trusted. The kernel keeps others out of the folder, and each connection
checks the peer's credentials again: a name proves nothing, since any process may bind an abstract name. An abstract
socket receives the sender's credentials with each datagram, and its reader calls `is_trusted`.

A socket's path outlives its process; the next process that binds the path removes the stale socket.
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
_TURN_S = 2e-3  # between two attempts to connect
_PR_SET_PTRACER, _ANY_PROCESS = 0x59616D61, (1 << 64) - 1


class _Socket(Protocol):
    def fileno(self) -> int: ...


HasFileno = int | _Socket


class Credentials(NamedTuple):
    """The credentials of a process, from the kernel; `pid` is 0 if it is in another PID namespace."""

    pid: int
    uid: int
    gid: int


_UNKNOWN = Credentials(0, 0xFFFF_FFFF, 0xFFFF_FFFF)


def is_trusted(process: Credentials) -> bool:
    return process.uid in (os.geteuid(), ROOT)


# -- folders ----------------------------------------------------------------------------------------------------------


def folder() -> Path:
    """Return weft's runtime folder. Its owner alone may write there: its sockets control the labs."""
    named = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(named) if named and Path(named).is_dir() else None
    if base is not None:
        facts = base.stat()
        others_write = facts.st_mode & 0o022 and not facts.st_mode & stat.S_ISVTX
        if facts.st_uid not in (os.geteuid(), ROOT) or others_write:
            raise ConfigError(f"XDG_RUNTIME_DIR={base} is writable by other users: unset it, or name a private folder")
    return private_folder(base / "weft" if base is not None else Path(f"/tmp/weft-{os.geteuid()}"))


def state_folder() -> Path:
    """Return the folder for files that outlive a reboot; it may not exist yet."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "weft"


def environment_in(place: Path) -> dict[str, str]:
    """Return the environment for processes whose labs and state are in a private folder, apart from all others."""
    own = str(private_folder(place))
    return os.environ | {"XDG_RUNTIME_DIR": own, "XDG_STATE_HOME": own}


def private_folder(path: Path) -> Path:
    """Create a folder if it does not exist; raise ConfigError if other users may enter it."""
    path.mkdir(mode=0o700, exist_ok=True)
    facts = path.lstat()
    if facts.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} belongs to user {facts.st_uid}: set XDG_RUNTIME_DIR to an existing folder of yours, "
            f"for example XDG_RUNTIME_DIR=$HOME, or have root remove {path}"
        )
    if not stat.S_ISDIR(facts.st_mode) or facts.st_mode & 0o077:
        raise ConfigError(f"{path} must be a folder that only its owner can enter: remove it, or chmod 700")
    return path


def is_alive(path: Path | bytes) -> bool:
    """Return whether a process has the socket at this path or with this abstract name, without disturbing it.

    Connecting a datagram socket to a stream socket fails in the kernel; the owner does not notice.
    """
    with _new(socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path if isinstance(path, bytes) else _name(path))
        except OSError as error:
            return error.errno not in (errno.ECONNREFUSED, errno.ENOENT, errno.ENOTDIR)
    return True


def clear(place: Path) -> None:
    """Remove the sockets of processes that were killed."""
    with lock_folder(place):
        for path in place.iterdir():
            if path.is_socket() and not is_alive(path):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def lock_folder(place: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder, so that one process at a time removes stale sockets or changes files."""
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


def _bind(sock: socket.socket, path: Path) -> os.stat_result:
    """Bind a socket and return the stat of its path. Raise OSError (EADDRINUSE) if a live process has the path."""
    os.fchmod(sock.fileno(), 0o600)  # the mode of the file that `bind` creates
    with lock_folder(path.parent):
        if path.is_socket() and not is_alive(path):
            path.unlink(missing_ok=True)
        sock.bind(_name(path))
        return os.stat(path)


def _remove_socket(path: Path, bound: os.stat_result) -> None:
    """Remove a socket's file, unless another process has recreated it meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.stat(path), bound):
            path.unlink()


class Listener:
    """A stream socket at a path, whose file it creates and removes."""

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
        self._open_spare()

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> socket.socket | None:
        """Return the next trusted connection without waiting, else None."""
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._reject_waiting()
            return None
        if not is_trusted(peer(connection)):
            connection.close()
            return None
        connection.setblocking(False)
        return connection

    def _open_spare(self) -> None:
        """Open a file descriptor to give up when no more are available."""
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _reject_waiting(self) -> None:
        """Close a waiting connection when no descriptor is free; it would otherwise wait, and wake us, for ever."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
            with contextlib.suppress(OSError):
                self._socket.accept()[0].close()
        self._open_spare()

    def close(self) -> None:
        """Remove the socket's file and close; a forked process closes only its own copy."""
        if self._process == os.getpid() and self.fileno() >= 0:
            _remove_socket(self.path, self._bound)
        self._socket.close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1


def dial(path: Path, timeout_s: float | None) -> socket.socket:
    """Connect to a Listener; the socket's operations time out after `timeout_s`. Raise OSError if refused."""
    connection = _new(socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        _connect(connection, path, timeout_s)
        if not is_trusted(peer(connection)):
            raise PermissionError(errno.EACCES, f"{path} belongs to user {peer(connection).uid}")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(connection: socket.socket, path: Path, timeout_s: float | None) -> None:
    """Connect, and retry until the timeout: with a full backlog the kernel refuses a non-blocking socket at once."""
    until_s = time.monotonic() + (timeout_s or 0.0)
    while True:
        try:
            return connection.connect(_name(path))
        except BlockingIOError:
            if time.monotonic() >= until_s:
                raise TimeoutError(
                    errno.ETIMEDOUT, f"connect to {path} timed out: backlog of {_BACKLOG} is full"
                ) from None
            time.sleep(_TURN_S)


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a stream socket that has no path."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    return ends


def wait_ready(readers: Iterable[HasFileno], writers: Iterable[HasFileno] = (), timeout_s: float = 0.0) -> bool:
    """Wait until a descriptor can be read or written, or has closed; return whether one is ready."""
    events: dict[int, int] = {}
    for descriptors, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
        for descriptor in descriptors:
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            events[number] = events.get(number, 0) | event
    poller = select.poll()
    for number, event in events.items():
        poller.register(number, event)
    return bool(poller.poll(timeout_s * 1e3))


class Inbox:
    """A datagram socket at a path that receives the sender's credentials. OSError if another process has the path."""

    def __init__(self, path: Path) -> None:
        self.path, self._process = path, os.getpid()
        self.socket = _new(socket.SOCK_DGRAM)
        try:
            receive_credentials(self.socket)
            self._bound = _bind(self.socket, path)
        except BaseException:
            self.socket.close()
            raise

    def close(self) -> None:
        """Remove the socket's file and close; a forked process closes only its own copy."""
        if self._process == os.getpid() and self.socket.fileno() >= 0:
            _remove_socket(self.path, self._bound)
        self.socket.close()


def connect(path: Path) -> socket.socket:
    """Return a datagram socket connected to a path. Raise OSError if no process has the path."""
    sock = _new(socket.SOCK_DGRAM)
    try:
        sock.connect(_name(path))
    except BaseException:
        sock.close()
        raise
    return sock


def abstract(name: bytes, to: bytes = b"") -> socket.socket:
    """Return a datagram socket with an abstract name that receives the sender's credentials.

    With `to` it receives only from the socket of that name. It connects before it binds, so that no other process can
    send to it in between.
    """
    sock = _new(socket.SOCK_DGRAM)
    try:
        if to:
            sock.connect(to)
        sock.bind(name)
        receive_credentials(sock)
    except BaseException:
        sock.close()
        raise
    return sock


def peer(connection: socket.socket) -> Credentials:
    """Return the credentials of the process at the other end of a stream when it connected."""
    return Credentials(*_STRUCT.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _STRUCT.size)))


def sender(ancillary: Sequence[tuple[int, int, bytes]]) -> Credentials:
    """Return the sender's credentials from the ancillary data of `recvmsg`; `_UNKNOWN` if absent."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            return Credentials(*_STRUCT.unpack_from(data))
    return _UNKNOWN


def receive_credentials(sock: socket.socket, *, enable: bool = True) -> None:
    """Ask the kernel for the sender's credentials with each datagram, or stop asking."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, enable)


def first_sender(sock: socket.socket) -> Credentials:
    """Return the sender of the next datagram on a connected abstract socket. Only one peer can send there: ask once."""
    _, ancillary, _, _ = sock.recvmsg(1, CREDENTIALS_BYTES, socket.MSG_PEEK)
    receive_credentials(sock, enable=False)  # credentials cost a tenth of a MAD
    return sender(ancillary)


def is_from_trusted(ancillary: Sequence[tuple[int, int, bytes]]) -> bool:
    """Return whether the sender is trusted; fast, for datagrams whose only ancillary data are credentials."""
    return bool(ancillary) and ancillary[0][2][_UID] in _trusted(os.geteuid())


@functools.cache
def _trusted(uid: int) -> frozenset[bytes]:
    return frozenset(trusted.to_bytes(4, sys.byteorder) for trusted in (uid, ROOT))


def allow_tracing(peers: Sequence[socket.socket]) -> None:
    """Let the processes at the other ends of streams, and only those, read and write this process's memory.

    Where Linux restricts that to ancestors (Yama, ptrace_scope 1) a process can name one more. With two or more peers
    it allows any process of the same user, as on an unrestricted system.
    """
    allowed = {peer(connection).pid for connection in peers}
    tracer = allowed.pop() if len(allowed) == 1 else _ANY_PROCESS if allowed else 0
    libc().prctl(_PR_SET_PTRACER, ctypes.c_ulong(tracer), 0, 0, 0)  # EINVAL on an unrestricted system


@functools.cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


# -- memory -----------------------------------------------------------------------------------------------------------


def memory(name: str, size_bytes: int) -> int:
    """Return the descriptor of an anonymous memory file. It is sealed: no process can shrink it."""
    file = os.memfd_create(f"weft-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(file, 0o600)
        os.ftruncate(file, size_bytes)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(file)
        raise
    return file
