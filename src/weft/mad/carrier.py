"""How a program sends MADs and hears what comes back, whatever carries them.

    token = carrier.send(smp)                         directed: the path is in the SMP
    token = carrier.send(mad, Address(lid=7))         to a LID; a directed SMP: by LID to where its path begins
    for token, answer in carrier.poll(wait_s=0.1):    as they come; None is a MAD that timed out, retries and all
    for arrival in carrier.arrivals():                what nobody here asked for: traps, questions to a manager
    answer = ask(carrier, smp)                        one MAD, and wait for it

There are three: `local` in this process over a `Subnet`, `umad` through libibumad (adapters, and ibsim by its preload),
`ibsim_client` over ibsim's sockets. As many MADs may be in flight as a program likes; the carrier gives each its own
transaction id, so what was in those bytes does not come back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from weft.wire.fields import Buffer
from weft.wire.mad import QP1_Q_KEY, MgmtClass
from weft.wire.smp import PERMISSIVE_LID

TIMEOUT_MS = 200  # OpenSM's transaction_timeout
RETRIES = 3  # and its transaction_retries
SMP_CLASSES = frozenset((int(MgmtClass.SUBN_LID_ROUTED), int(MgmtClass.SUBN_DIRECTED_ROUTE)))


@dataclass(frozen=True, slots=True)
class Address:
    """Where a MAD goes, or came from. SMPs always use QP 0 and VL 15: of an address they take the LID only."""

    lid: int = PERMISSIVE_LID
    qp: int = 1
    q_key: int = QP1_Q_KEY
    sl: int = 0
    pkey_index: int = 0


HERE = Address()  # of a directed SMP that needs no LID


@dataclass(frozen=True, slots=True)
class Arrived:
    """A MAD that is no answer to one of ours. `source.lid` is PERMISSIVE_LID if it came by a directed path alone.

    It has 256 bytes; or more, if what is below put a transfer by RMPP together.
    """

    mad: bytes
    source: Address


class Carrier(Protocol):
    """One port of one node, through which a program speaks."""

    def send(self, mad: Buffer, to: Address = HERE, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES) -> int:
        """A request: 256 bytes. Returns a token at once; `poll` brings its answer, or that none came.

        After `timeout_ms` without an answer it is sent again, `retries` times.
        """
        ...

    def post(self, mad: Buffer, to: Address = HERE) -> None:
        """A MAD to which no answer is due: a response to an arrival, a trap, TrapRepress. Its transaction id is kept.

        The response to a directed SMP that arrived goes to HERE: it finds its way back by the path in it.
        """
        ...

    def poll(self, wait_s: float = 0.0, *, only: int | None = None) -> list[tuple[int, bytes | None]]:
        """Tokens whose answer came, with it, or that timed out, with None; each token once.

        Waits up to `wait_s` if there is nothing yet, and returns early if something arrives unasked. With `only`, that
        token alone is waited for and returned; what else comes is kept for the next poll.
        """
        ...

    def arrivals(self) -> list[Arrived]:
        """What arrived unasked since the last call; does not wait."""
        ...

    def register(self, mgmt_class: int, methods: Iterable[int], *, class_version: int = 1, oui: int = 0) -> None:
        """Ask for the MADs of a class with these methods, to have them in `arrivals`. Sending needs no registration.

        `oui` for vendor classes 0x30 to 0x4F.
        """
        ...

    def set_is_sm(self, on: bool) -> None:
        """Say in the port's CapabilityMask that a subnet manager is here, or is no more."""
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
    patience_s = timeout_ms / 1000 * (retries + 1)
    while True:
        for _, answer in carrier.poll(patience_s, only=token):
            return answer
