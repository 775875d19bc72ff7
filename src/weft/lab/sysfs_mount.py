"""Run a program with its own /sys: that of this machine, with the adapters of a lab host.

    python -I -S sysfs_mount.py FD COMMAND...      FD: `sysfs_tree.Tree` as JSON

A mount namespace gives a process mounts of its own. A tmpfs with the files of the tree covers /sys, and the machine's
other entries are bound into it. All programs see it, static ones too, and it ends with the last of them. Users other
than root need a user namespace, in which the program then runs: see docs/design/0034.

A program by itself, of the standard library alone: the process that starts it may have threads, and between fork and
exec those allow next to nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import NoReturn

_SYS = "/sys"
_CLONE_NEWNS, _CLONE_NEWUSER = 0x0002_0000, 0x1000_0000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_SLAVE = 4096, 16384, 1 << 19
_ARPHRD_INFINIBAND = "32"
_MAY_NOT = """weft: --sysfs needs mounts of its own, and Linux does not let user {user} have them here: {reason}
  As root it needs CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN --security-opt apparmor=unconfined); else user
  namespaces: sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0. ibstat and all that
  come through libibumad need neither: leave out --sysfs."""


def main(words: list[str]) -> NoReturn:
    with open(int(words[0]), encoding="utf-8") as file:
        tree = json.load(file)
    try:
        enter()
        show(tree["files"], tree["links"])
    except OSError as error:
        _refuse(_MAY_NOT.format(user=os.geteuid(), reason=error))
    for name in ("SIGPIPE", "SIGXFSZ"):  # which Python ignores, and programs would inherit
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execv(words[1], words[1:])
    except OSError as error:
        _refuse(f"weft: {words[1]} cannot be run: {error.strerror}")


def _refuse(why: str) -> NoReturn:
    print(why, file=sys.stderr)
    sys.exit(2)


def enter() -> None:
    """Enter a mount namespace; without privileges, in a user namespace with the same user."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _CLONE_NEWNS)
    except PermissionError:
        _call("unshare", _CLONE_NEWNS | _CLONE_NEWUSER)
        for name, says in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(says)
    _mount("none", "/", _MS_REC | _MS_SLAVE)  # later mounts of the machine appear here, not the reverse


def show(files: Mapping[str, str], links: Mapping[str, str]) -> None:
    """Lay the tree over /sys."""
    machine = os.open(_SYS, os.O_PATH)  # leads below what is mounted over it
    _mount("tmpfs", _SYS, _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "tmpfs")
    for path, says in files.items():
        os.makedirs(os.path.dirname(f"{_SYS}/{path}"), exist_ok=True)
        with open(f"{_SYS}/{path}", "w", encoding="utf-8") as file:
            file.write(says)
    for path, to in links.items():
        os.makedirs(os.path.dirname(f"{_SYS}/{path}"), exist_ok=True)
        os.symlink(to, f"{_SYS}/{path}")
    _add_machine(f"/proc/self/fd/{machine}", "")
    os.close(machine)
    _mount("none", _SYS, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def _add_machine(machine: str, folder: str) -> None:
    """Add the machine's entries of a folder of /sys, except its own InfiniBand."""
    for entry in os.scandir(f"{machine}{folder}"):
        path = f"{folder}/{entry.name}"
        target = _SYS + path
        if os.path.lexists(target):
            if entry.is_dir(follow_symlinks=False) and not os.path.islink(target):
                _add_machine(machine, path)
        elif is_infiniband(machine, folder, entry.name):
            continue
        elif entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        else:
            if entry.is_dir():
                os.mkdir(target)
            else:
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
            _mount(entry.path, target, _MS_BIND | _MS_REC)


def is_infiniband(machine: str, folder: str, name: str) -> bool:
    """Return whether an entry of a folder of the machine's /sys is of its own InfiniBand adapters."""
    if folder == "/class/net":
        try:
            with open(f"{machine}{folder}/{name}/type", encoding="ascii") as file:
                return file.read().strip() == _ARPHRD_INFINIBAND
        except OSError:  # bonding_masters, which is no interface
            return False
    return folder == "/class" and name.startswith("infiniband")


def _mount(source: str, target: str, flags: int, kind: str = "none") -> None:
    _call("mount", source.encode(), target.encode(), kind.encode(), flags, None)


def _call(function: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments):
        number = ctypes.get_errno()
        target = next((argument.decode() for argument in arguments[1:2] if isinstance(argument, bytes)), "")
        raise OSError(number, f"{function}: {os.strerror(number)}", *([target] if target else []))


if __name__ == "__main__":
    main(sys.argv[1:])
