"""Join a lab from another machine: the local sockets for programs, and the program to run.

Programs find the same sockets as with `weft exec`, in a folder of this process; a connection to one becomes a stream to
the lab. While the connection to the lab is lost programs wait for their answers, and RDMA programs get an event that
their port is down. The client reconnects until its time is over: then it closes the sockets, as if the lab had ended.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from weft import runtime
from weft.errors import ConfigError, SubnetError
from weft.lab import preload, programs
from weft.lab.join.frames import Forged, Wire
from weft.lab.join.handshake import JoinRequest, shake_hands
from weft.lab.join.server import UMAD, VERBS, parse_address
from weft.lab.join.session import IN, Channel, Session, Watch
from weft.verbs.carriers.lab.connection import FRAME, SUFFIX, Event, Kind, frame

_ANSWER_S, _AGAIN_S = 10.0, 2.0  # how long a lab may take to answer, at first and after a cut
_TICK_S, _RETRY_S = 1.0, 0.2
_CUT = frame(Kind.EVENT, bytes((Event.CUT,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """The address, token and request of a host that joins."""

    address: str
    token: str
    request: JoinRequest

    def accept(self, request: JoinRequest, answer_s: float) -> tuple[dict[str, Any], Wire]:
        """Connect and authenticate; raise ConfigError if the lab refuses, SubnetError if no lab answers."""
        place = parse_address(self.address)
        try:
            connection = socket.create_connection(place, answer_s)
        except OSError as error:
            raise SubnetError(
                f"no lab answers at {self.address}: {error.strerror or error}; does one run there,"
                " brought up with `weft up SPEC --join ADDRESS:PORT`?"
            ) from None
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return shake_hands(connection, self.token, request, self.address)
        except OSError as error:
            connection.close()
            raise SubnetError(f"the lab at {self.address} does not answer: {error.strerror or error}") from None
        except BaseException:
            connection.close()
            raise


class Boundary:
    """A tracker of frame boundaries in the stream of an RDMA program."""

    def __init__(self) -> None:
        self._head, self._left = b"", 0

    @property
    def is_here(self) -> bool:
        return not self._head and not self._left

    def passed(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
            else:
                step = min(FRAME.size - len(self._head), len(data) - at)
                self._head += data[at : at + step]
                if len(self._head) == FRAME.size:
                    self._left, self._head = FRAME.unpack(self._head)[0], b""
            at += step


class JoinClient:
    """A connection that makes this machine a host of a lab."""

    def __init__(self, invitation: Invitation, folder: Path | None = None) -> None:
        """Join. `folder`: where the sockets are; without it a private one, which `close` removes."""
        self._invitation = invitation
        answer, wire = invitation.accept(invitation.request, _ANSWER_S)
        self.host, self._lab, self._number = str(answer["host"]), str(answer["lab"]), str(answer["session"])
        self.sysfs: Mapping[str, Any] | None = answer.get("sysfs")
        self._watch = Watch()
        self._session = Session(self._watch, on_cut=self._on_cut, on_bye=self._on_bye, on_notice=_say)
        self._boundaries: dict[Channel, Boundary] = {}
        _clear_away()
        self._temporary = None if folder else runtime.private_folder(runtime.folder() / f"join-{secrets.token_hex(4)}")
        place = folder or self._temporary
        assert place is not None
        self._doors = {
            UMAD: runtime.Listener(place / f"{self._lab}.umad"),
            VERBS: runtime.Listener(place / f"{self._lab}{SUFFIX}"),
        }
        self._lost_s = 0.0
        self._is_over = False
        self._connect(wire, 0)

    def close(self) -> None:
        self._close_doors(f"{self.host} leaves")
        self._watch.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    @property
    def is_over(self) -> bool:
        """The property that this machine is a host no more."""
        return self._is_over

    def environment(self) -> dict[str, str]:
        """Return the environment variables for programs on this host."""
        if os.environ.get("WEFT_UMAD2SIM") or preload.library() is None:
            raise ConfigError(
                "programs see a lab of another machine through a library of weft's, which a C compiler makes once:"
                " install gcc, and unset WEFT_UMAD2SIM"
            )
        paths = {"socket": str(self._doors[UMAD].path), "verbs": str(self._doors[VERBS].path)}
        return programs.environment({"host": self.host, **paths})

    # -- running ------------------------------------------------------------------------------------------------------

    def attend(self, child: subprocess.Popen[bytes]) -> int:
        """Serve until a program ends; return its status as a shell would."""
        signal.signal(signal.SIGINT, lambda number, _: None)  # the terminal's reaches both
        ended = os.pidfd_open(child.pid)
        self._watch.set(ended, IN, lambda mask: None)
        try:
            self.serve(lambda: child.poll() is not None)
        finally:
            self._watch.forget(ended)
            os.close(ended)
        return programs.shell_status(child.returncode)

    def serve(self, is_done: Callable[[], bool]) -> None:
        """Serve programs of this host until `is_done`, which is called at least every second."""
        while not is_done():
            if self._is_cut:
                self._come_back()
            self._watch.step(_RETRY_S if self._is_cut else _TICK_S)
            self._session.on_timer()
        self._watch.step(0)  # its last words

    @property
    def _is_cut(self) -> bool:
        return self._session.wire is None and not self._is_over

    def _connect(self, wire: Wire, received: int) -> None:
        self._session.connect(wire, received)
        for number, door in self._doors.items():
            self._watch.set(door, IN, partial(self._on_door, number))

    def _on_door(self, number: int, mask: int) -> None:
        accepted = self._doors[number].accept()
        if accepted is None:
            return
        channel = self._session.open(number, accepted)
        if number == VERBS:
            self._boundaries[channel] = boundary = Boundary()
            channel.on_data = boundary.passed
            for old in [channel for channel in self._boundaries if channel.number not in self._session.channels]:
                del self._boundaries[old]

    # -- cuts ---------------------------------------------------------------------------------------------------------

    def _on_cut(self, why: str) -> None:
        self._lost_s = time.monotonic()
        _say(f"{self.host} is cut off from the lab at {self._invitation.address}: {why}")
        for door in self._doors.values():
            self._watch.forget(door)
        for channel, boundary in self._boundaries.items():
            if boundary.is_here and channel.number in self._session.channels:
                self._session.tell(channel, _CUT)

    def _come_back(self) -> None:
        """Try, once."""
        request = replace(
            self._invitation.request, session=self._number, received=self._session.received, has_sysfs=False
        )
        try:
            answer, wire = self._invitation.accept(request, _AGAIN_S)
            self._connect(wire, int(answer["received"]))
        except SubnetError as error:
            if time.monotonic() - self._lost_s > request.timeout_s:
                self._give_up(str(error))
            return
        except (ConfigError, Forged) as error:
            self._give_up(str(error))
            return
        _say(
            f"{self.host} is connected to the lab at {self._invitation.address} again; its port is down until the"
            " subnet manager makes it Active"
        )

    def _on_bye(self, why: str) -> None:
        self._give_up(why)

    def _give_up(self, why: str) -> None:
        _say(f"{self.host} is a host no more: {why}")
        self._close_doors("")

    def _close_doors(self, why: str) -> None:
        self._is_over = True
        self._session.end(why)
        for door in self._doors.values():
            if door.fileno() >= 0:
                self._watch.forget(door)
                door.close()


def run(command: Sequence[str], invitation: Invitation, variables: Mapping[str, str]) -> int:
    """Join, run a program, leave; its status."""
    client = JoinClient(invitation)
    try:
        with programs.WorkingFolder() as folder:
            environment = client.environment() | dict(variables)
            child = programs.launch(command, environment, client.sysfs, folder=folder, passes_on=programs.PASSED_ON)
            return client.attend(child)
    finally:
        client.close()


def _clear_away() -> None:
    """Remove folders of processes that were killed."""
    for folder in runtime.folder().glob("join-*"):
        doors = list(folder.glob("*.umad"))
        if doors and not any(runtime.is_alive(door) for door in doors):
            shutil.rmtree(folder, ignore_errors=True)


def _say(text: str) -> None:
    print(f"weft: {text}", file=sys.stderr, flush=True)
