"""Capture what crosses a cable of a lab, for Wireshark: MADs and the packets of programs, as bytes of the wire.

Data of the packet engine (`weft traffic`, `weft load`) is counted and has no bytes, so it is not captured.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from weft.errors import ConfigError
from weft.lab.ibsim import Server
from weft.lab.metered_paths import MeteredPaths
from weft.lab.places import cables, far_end
from weft.mad.tap import Tap
from weft.sim.engine import Progress
from weft.units import format_items
from weft.wire.pcap import LinkType, PcapngWriter

_LOOK_S = 0.1
_PS_PER_NS = 1000


class Captures:
    """The captures of a lab, one at a time. `run` may be called from any thread; frames come in the server's."""

    def __init__(self, server: Server, metered_paths: MeteredPaths) -> None:
        self._server, self._metered_paths = server, metered_paths
        self._one = threading.Lock()

    def run(
        self, port: str, path: Path, *, seconds: float | None, packets: int | None, progress: Progress | None
    ) -> dict[str, Any]:
        """Capture until the time is over, there are enough packets, or `progress` raises."""
        devices = self._server.subnet.devices
        slots = cables(devices, port)
        if len(slots) > 1:
            raise ConfigError(f"{port} has {len(slots)} cables: name the port of one, as in leaf1/5")
        if not self._one.acquire(blocking=False):
            raise ConfigError("another capture runs in this lab: end it first")
        try:
            with _opened(path) as file:
                names = {end: devices.name(end) for end in (slots[0], far_end(devices, slots[0]))}
                link_type = LinkType.ETHERNET if slots[0] in devices.ethernet else LinkType.ERF
                return self._record(_Recording.start(file, names, packets, link_type), seconds, progress)
        finally:
            self._one.release()

    def _record(self, recording: _Recording, seconds: float | None, progress: Progress | None) -> dict[str, Any]:
        until_s = time.monotonic() + (seconds or 0.0)
        self._server.call(lambda: self._tap(Tap(recording.interfaces, recording.take)))
        try:
            while not recording.is_over and (seconds is None or time.monotonic() < until_s):
                if progress is not None:
                    progress(recording.packets, recording.most or 0)
                time.sleep(_LOOK_S)
        finally:
            self._server.call(lambda: self._tap(None))
        if recording.failure:
            raise ConfigError(
                f"the capture ended after {format_items(recording.packets, 'packet')}: {recording.failure}"
            )
        return {"packets": recording.packets, "bytes": recording.size_bytes}

    def _tap(self, tap: Tap | None) -> None:
        """Set the tap in the server's thread. Programs with a metered path ask for another, or send packets."""
        self._metered_paths.close_all()
        self._server.subnet.devices.set_tap(tap)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open the file for writing; ConfigError if it takes nothing."""
    try:
        with path.open("wb", buffering=0) as file:
            yield file
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise  # the client has ended
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


@dataclass(slots=True)
class _Recording:
    """A file that grows; its interfaces are named after the port by which a frame leaves."""

    writer: PcapngWriter
    interfaces: dict[int, int]  # slot -> of the file
    most: int | None
    packets: int = 0
    size_bytes: int = 0
    failure: str = ""

    @classmethod
    def start(
        cls, file: BinaryIO, names: dict[int, str], most: int | None, link_type: LinkType = LinkType.ERF
    ) -> _Recording:
        writer = PcapngWriter(file)
        add = partial(writer.add_interface, link_type=link_type, is_wall_clock=True)
        return cls(writer, {slot: add(name) for slot, name in names.items()}, most)

    @property
    def is_over(self) -> bool:
        return bool(self.failure) or (self.most is not None and self.packets >= self.most)

    def take(self, slot: int, frame: bytes) -> None:
        """Write a frame. A disk that is full ends the capture, not the lab."""
        if self.is_over:
            return
        try:
            self.writer.write(frame, time.time_ns() * _PS_PER_NS, self.interfaces[slot])
        except OSError as error:
            self.failure = error.strerror or str(error)
            return
        self.packets += 1
        self.size_bytes += len(frame)
