"""The files of a joined host's adapters, for containers that mount them where Linux has them.

    FOLDER/sys      the host's part of /sys
    FOLDER/class    for /sys/class: the machine's own classes, and the host's infiniband, infiniband_* and net
    FOLDER/dev      for /dev/infiniband: uverbs0, umad0, issm0, ..., rdma_cm

A container cannot mount over /sys/class/infiniband, which nodes without InfiniBand lack; /sys/class is there. Its
entries are links into /sys/devices, and those of the host links into FOLDER/sys. Making devices needs a right that
containers lack, so those of FOLDER/dev are links to /dev/null: programs that look for them find character devices that
they may open, and use adapters by weft's preloaded libraries.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath

from weft.errors import ConfigError
from weft.lab.sysfs_mount import is_infiniband
from weft.lab.sysfs_tree import Tree

_SYS = Path("/sys")
_CHARACTER_DEVICES = ("infiniband_mad", "infiniband_verbs")


def write(folder: Path, tree: Tree, machine: Path = _SYS) -> None:
    """Write the files of a tree into a shared folder. machine: the /sys whose other classes remain visible."""
    write_tree(folder / "sys", tree)
    _write_classes(folder / "class", folder / "sys" / "class", machine)
    devices = _emptied(folder / "dev")
    names = [path.name for group in _CHARACTER_DEVICES for path in (folder / "sys/class" / group).glob("*[0-9]")]
    for name in (*names, "rdma_cm") if names else ():
        (devices / name).symlink_to("/dev/null")


def write_tree(folder: Path, tree: Tree) -> None:
    """Write the files and links of a part of /sys."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in (*tree.files, *tree.links):
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ConfigError(f"the lab sent a file outside of /sys: {path}")
    for path, text in tree.files.items():  # before links, through which a path could lead outside
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    for path, to in tree.links.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(to)


def _write_classes(folder: Path, ours: Path, machine: Path) -> None:
    """Write the classes of the machine, without its InfiniBand, and those of the host."""
    _emptied(folder)
    for group in os.scandir(machine / "class"):
        if is_infiniband(str(machine), "/class", group.name) or not group.is_dir(follow_symlinks=False):
            continue
        (folder / group.name).mkdir()
        for entry in os.scandir(group):
            if entry.is_symlink() and not is_infiniband(str(machine), f"/class/{group.name}", entry.name):
                (folder / group.name / entry.name).symlink_to(os.readlink(entry))
    for path in ours.glob("*/*"):
        target = folder / path.relative_to(ours)
        target.parent.mkdir(exist_ok=True)
        target.symlink_to(path)


def _emptied(folder: Path) -> Path:
    """Return the folder without what was in it; it stays the same one, which containers may have mounted."""
    folder.mkdir(exist_ok=True)
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry)
        else:
            os.unlink(entry)
    return folder
