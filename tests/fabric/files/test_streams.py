"""Paths of links, pipes, devices and file descriptors are written to, not replaced by a file."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from weft.errors import ConfigError, FileError
from weft.fabric import files
from weft.fabric.files.atomic import write_atomically
from weft.fabric.files.text import descriptor, is_stream, read_bytes, read_text, suffix_of
from weft.fabric.spec import load

FULL, ZERO = (1, 7), (1, 5)


def device(path: Path, major: int, minor: int) -> Path:
    """Create a character device for the test, so that a bug cannot remove one of the machine."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        pytest.skip(f"no device can be made here: {error.strerror}")
    return path


def test_writing_to_a_link_replaces_its_target(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    target.write_text("old")
    link.symlink_to("there/file")
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert os.listdir(tmp_path / "there") == ["file"]


def test_writing_to_a_dangling_link_creates_its_target(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ConfigError, match=r"cannot write .*/a: "):
        write_atomically(tmp_path / "a", "new")


def test_the_rights_of_a_file_stay(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    write_atomically(tmp_path / "file", "new")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_full_device_is_one_clear_error_and_is_there_afterwards(tmp_path):
    full = device(tmp_path / "full", *FULL)
    with pytest.raises(ConfigError, match=r"cannot write .*full: No space left on device"):
        write_atomically(full, "text")
    assert full.is_char_device()
    assert os.listdir(tmp_path) == ["full"]


def test_a_pipe_gets_the_bytes_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    text = "text\n" * 100_000  # more than a pipe holds
    received: list[str] = []
    reader = threading.Thread(daemon=True, target=lambda: received.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_atomically(tmp_path / "pipe", text)
    reader.join()
    assert received == [text]
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_and_a_socket_are_refused_and_stay(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot write .*: Is a directory"):
        write_atomically(tmp_path, "text")
    with socket.socket(socket.AF_UNIX) as result:
        result.bind(str(tmp_path / "socket"))
        with pytest.raises(ConfigError, match=r"cannot write .*socket"):
            write_atomically(tmp_path / "socket", "text")
    assert (tmp_path / "socket").is_socket()


def test_a_descriptor_is_written_where_it_stands(tmp_path):
    """`-o /dev/fd/N >> log`: what the log has stays, and so does the file that others have open."""
    log = tmp_path / "log"
    log.write_text("before\n")
    before = log.stat().st_ino
    with log.open("a") as stream:
        write_atomically(f"/dev/fd/{stream.fileno()}", "after\n")
    assert log.read_text() == "before\nafter\n"
    assert log.stat().st_ino == before


def test_which_names_are_descriptors(tmp_path):
    assert descriptor("-", 1) == 1
    assert (descriptor("/dev/stdin", 1), descriptor("/dev/stdout", 0), descriptor("/dev/fd/77", 0)) == (0, 1, 77)
    (tmp_path / "link").symlink_to("/dev/stdout")
    assert descriptor(tmp_path / "link", 0) == 1
    for name in ("", "-x", "file", str(tmp_path), "/dev/null", "\0", "/proc/1/fd/1"):
        assert descriptor(name, 1) is None
    assert is_stream("/dev/null")
    assert not is_stream(tmp_path)
    assert suffix_of("-", ".svg") == ".svg"
    assert suffix_of("a.PNG", ".svg") == ".png"


@pytest.mark.parametrize("name", ["ibnetdiscover", "opensm", "ndt", "lab"])
def test_a_fabric_is_read_from_a_pipe(name, tmp_path):
    tree = load("fat-tree:hosts=12,radix=8")
    os.mkfifo(tmp_path / "pipe")
    for _ in range(2):  # nothing of the first time is left for the second
        writer = threading.Thread(daemon=True, target=files.write, args=(tree, tmp_path / "pipe", name))
        writer.start()
        again = load(str(tmp_path / "pipe"))
        writer.join()
        assert len(again.links) == len(tree.links)
        tree = load("fat-tree:hosts=8,radix=8")


def test_a_file_given_as_a_descriptor_is_read_whole(tmp_path):
    path = tmp_path / "net"
    files.write(load("fat-tree:hosts=128,radix=16"), path, "ibnetdiscover")
    with path.open() as stream:
        assert load(f"/dev/fd/{stream.fileno()}").nodes.name == load(str(path)).nodes.name


def test_devices_and_directories_are_not_read(tmp_path):
    zero = device(tmp_path / "zero", *ZERO)
    with pytest.raises(FileError, match="is a device; give a file or a pipe"):
        read_bytes(zero)
    with pytest.raises(FileError, match="is a directory; give a file"):
        read_text(tmp_path)
