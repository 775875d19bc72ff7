"""Define the interface for sending MADs and receiving responses, for any transport.

    token = carrier.send(smp)                         directed: the path is in the SMP
    token = carrier.send(mad, Address(lid=7))         to a LID; a directed SMP: by LID to where its path begins
    for token, answer in carrier.poll(wait_s=0.1):    as they come; None is a MAD that timed out, retries and all
    for arrival in carrier.arrivals():                unsolicited MADs: traps, requests to a manager
    answer = ask(carrier, smp)                        one MAD, and wait for it
    answers, came = carrier.exchange(smps)            thousands, as arrays

There are three: `local` in this process over a `Subnet`, `umad` through libibumad (adapters, and ibsim by its preload),
`ibsim_client` over ibsim's sockets. Any number of MADs may be in flight; the carrier sets the transaction id of each,
so the caller's is not returned. Messages longer than a MAD, such as tables of the subnet administrator, are sent and
received whole; the carrier does their segments (RMPP).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.mad.transfers import Transfers
from weft.runtime import wait_ready
from weft.wire.fields import Buffer
from weft.wire.mad import MAD_BYTES, QP1_Q_KEY, MgmtClass
from weft.wire.smp import PERMISSIVE_LID

Mads = NDArray[np.uint8]  # [n, 256]
Lids = NDArray[np.int64]
Answers = tuple[Mads, NDArray[np.bool_]]  # and which came
TIMEOUT_MS = 200  # OpenSM's transaction_timeout
RETRIES = 3  # and its transaction_retries
WATCH_S = 0.01  # how often a carrier that can wait for its port alone looks at what it shall `watch`
SMP_CLASSES = frozenset((int(MgmtClass.SUBN_LID_ROUTED), int(MgmtClass.SUBN_DIRECTED_ROUTE)))


@dataclass(frozen=True, slots=True)
class Address:
    """The destination or source of a MAD. SMPs always use QP 0 and VL 15: only the LID counts for them."""

    lid: int = PERMISSIVE_LID
    qp: int = 1
    q_key: int = QP1_Q_KEY
    sl: int = 0
    pkey_index: int = 0


HERE = Address()  # for a directed SMP, which needs no LID


@dataclass(frozen=True, slots=True)
class Arrived:
    """A MAD that is no answer to one of ours. `source.lid` is PERMISSIVE_LID if it came by a directed path alone.

    It has 256 bytes; more or fewer, if it came as RMPP.
    """

    mad: bytes
    source: Address


class Polled(ABC):
    """A base class for carriers over a socket or a device; `_go_on` waits for input, reads it, and sends."""

    _last = 0  # token
    _transfers: Transfers

    def __init__(self) -> None:
        self._done: dict[int, bytes | None] = {}
        self._arrived: list[Arrived] = []
        self._watched: list[int] = []

    @abstractmethod
    def _go_on(self, wait_s: float) -> None: ...

    def _next_tokens(self, count: int) -> int:
        """Return the first of `count` consecutive tokens; they wrap around."""
        first = self._last + 1 if self._last + count < 1 << 32 else 1
        self._last = first + count - 1
        return first

    def unsent_bytes(self) -> int:
        return self._transfers.unsent_bytes()

    def poll(self, wait_s: float = 0.0, *, only: int | None = None) -> list[tuple[int, bytes | None]]:
        until_s, before = time.monotonic() + wait_s, len(self._arrived)
        self._go_on(0.0)
        while True:
            left_s = until_s - time.monotonic()
            if only is not None and (only in self._done or left_s <= 0):
                return [(only, self._done.pop(only))] if only in self._done else []
            if only is None and (self._done or len(self._arrived) > before or left_s <= 0 or wait_ready(self._watched)):
                done, self._done = list(self._done.items()), {}
                return done
            self._go_on(left_s)

    def watch(self, file: int) -> None:
        self._watched = [file]

    def arrivals(self) -> list[Arrived]:
        self._go_on(0.0)
        arrived, self._arrived = self._arrived, []
        return arrived


class Carrier(Protocol):
    """A port of a node through which a program sends and receives MADs."""

    def send(self, mad: Buffer, to: Address = HERE, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES) -> int:
        """Send a request of 256 bytes and return a token at once; `poll` returns its answer, or None for a timeout.

        After `timeout_ms` without an answer, or a part of one, it is sent again, `retries` times.
        """
        ...

    def exchange(
        self, mads: Mads, to: Lids | None = None, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES
    ) -> Answers:
        """Send all requests, uint8[n, 256], as many in flight as the carrier can hold; directed, or to LIDs `to`.

        The answers in the same order, and which came; where none came after all retries the row is zeros. What else
        comes meanwhile is kept for `poll` and `arrivals`.
        """
        ...

    def post(self, mad: Buffer, to: Address = HERE) -> None:
        """Send a MAD that expects no answer: a response to an arrival, a trap, TrapRepress. Keep its transaction id.

        The response to a directed SMP that arrived goes to HERE: it finds its way back by the path in it. A response
        of more than 256 bytes, all its data behind the header of its class, goes as RMPP; so does a shorter one whose
        RMPP flags say ACTIVE, which a table must even if it fits into one MAD. `poll` goes on sending it.
        """
        ...

    def unsent_bytes(self) -> int:
        """Return how many bytes of posted long messages are not sent or not acknowledged yet.

        A program that posts many long messages should wait while this is large; 0 if a kernel queues them.
        """
        ...

    def poll(self, wait_s: float = 0.0, *, only: int | None = None) -> list[tuple[int, bytes | None]]:
        """Return tokens with their answers, or with None after a timeout; each token once.

        Waits up to `wait_s` if there is nothing yet, and returns early if something arrives unasked. With `only`, that
        token alone is waited for and returned; what else comes is kept for the next poll.
        """
        ...

    def watch(self, file: int) -> None:
        """Make a waiting `poll` return within 10 ms when this file descriptor becomes readable.

        This is for programs with other inputs than this port. Only one file is watched, the last.
        """
        ...

    def arrivals(self) -> list[Arrived]:
        """Return the unsolicited MADs that arrived since the last call, without waiting."""
        ...

    def register(self, mgmt_class: int, methods: Iterable[int], *, class_version: int = 1, oui: int = 0) -> None:
        """Ask for the MADs of a class with these methods, to have them in `arrivals`. Sending needs no registration.

        `oui` for vendor classes 0x30 to 0x4F.
        """
        ...

    def set_is_sm(self, on: bool) -> None:
        """Set or clear the IsSM bit in the port's CapabilityMask."""
        ...

    def close(self) -> None:
        """Let go of the port; what is in flight is forgotten."""
        ...


def ask(
    carrier: Carrier,
    mad: Buffer,
    to: Address = HERE,
    *,
    timeout_ms: int = TIMEOUT_MS,
    retries: int = RETRIES,
) -> bytes | None:
    """Send one MAD and wait for its answer; None if none came."""
    token = carrier.send(mad, to, timeout_ms=timeout_ms, retries=retries)
    timeout_s = timeout_ms / 1000 * (retries + 1)
    while True:
        for _, answer in carrier.poll(timeout_s, only=token):
            return answer


def exchange_singly(carrier: Carrier, mads: Mads, lids: Lids, *, timeout_ms: int, retries: int) -> Answers:
    """Implement `exchange` by `send` and `poll`, for carriers without a faster way. Cut long answers to one MAD."""
    tokens = [
        carrier.send(mad.tobytes(), Address(lid), timeout_ms=timeout_ms, retries=retries)
        for mad, lid in zip(mads, lids.tolist(), strict=True)
    ]
    answers: list[bytes | None] = []
    while len(answers) < len(tokens):
        answers += [answer for _, answer in carrier.poll(timeout_ms / 1000, only=tokens[len(answers)])]
    return as_rows(answers)


def as_rows(answers: Sequence[bytes | None]) -> Answers:
    """Return answers in the form of `exchange`."""
    rows = b"".join((answer or b"")[:MAD_BYTES].ljust(MAD_BYTES, b"\0") for answer in answers)
    came = np.array([answer is not None for answer in answers], np.bool_)
    return np.frombuffer(bytearray(rows), np.uint8).reshape(-1, MAD_BYTES), came


def check_requests(mads: Mads, to: Lids | None) -> tuple[Mads, Lids]:
    """Check the arguments of `exchange` and return them as uint8[n, 256] and int64[n]; PERMISSIVE_LID: directed."""
    mads = np.ascontiguousarray(mads, np.uint8)
    if mads.ndim != 2 or mads.shape[1] != MAD_BYTES:
        raise ConfigError(f"exchange takes MADs of {MAD_BYTES} bytes as uint8[n, {MAD_BYTES}], not {mads.shape}")
    lids = np.full(len(mads), PERMISSIVE_LID) if to is None else np.asarray(to, np.int64)
    if lids.shape != (len(mads),):
        raise ConfigError(f"exchange was given {len(mads)} MADs, but {lids.size} LIDs to send them to")
    return mads, lids


def number_requests(mads: Mads, first: int) -> Mads:
    """Return a copy with consecutive transaction ids from `first` in the lower half, and zeros in the upper half."""
    numbered = mads.copy()
    numbered[:, 8:16] = np.arange(first, first + len(mads)).astype(">u8").view(np.uint8).reshape(-1, 8)
    return numbered
