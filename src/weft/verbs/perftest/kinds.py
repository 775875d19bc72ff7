"""Define the tests of perftest with their defaults and limits, for the simulator and for real runs."""

from __future__ import annotations

import enum
from dataclasses import fields
from typing import Any

from weft.errors import ConfigError, UnknownName

LIMITS = {  # perftest's options: least and most
    "iterations": (1, 1 << 32),
    "duration_s": (1, 86_400),
    "qps": (1, 16_384),
    "tx_depth": (1, 15_000),
    "rx_depth": (1, 16_384),
    "cq_mod": (1, 1024),
    "outs": (1, 128),
    "inline_bytes": (0, 1024),
    "sl": (0, 15),
    "qp_timeout": (0, 31),
}
ALL_SIZES = tuple(2**power for power in range(1, 24))  # the sizes of `-a`
WORD_BYTES = 8  # atomic operand


class Verb(enum.StrEnum):
    WRITE = "write"
    READ = "read"
    SEND = "send"
    ATOMIC = "atomic"

    @property
    def is_answered(self) -> bool:
        """The property that the requester gets a response and the peer no completion."""
        return self in (Verb.READ, Verb.ATOMIC)


class Connection(enum.StrEnum):
    RC = "RC"
    UC = "UC"
    UD = "UD"


class Test(enum.StrEnum):
    __test__ = False  # not a test class of pytest

    WRITE_BW = "ib_write_bw"
    READ_BW = "ib_read_bw"
    SEND_BW = "ib_send_bw"
    ATOMIC_BW = "ib_atomic_bw"
    WRITE_LAT = "ib_write_lat"
    READ_LAT = "ib_read_lat"
    SEND_LAT = "ib_send_lat"
    ATOMIC_LAT = "ib_atomic_lat"

    @classmethod
    def _missing_(cls, value: object) -> Test | None:
        """Find a test without the prefix `ib_`: `write_bw`."""
        return next((test for test in cls if test == f"ib_{value}"), None)

    @property
    def verb(self) -> Verb:
        return Verb[self.name.partition("_")[0]]

    @property
    def is_latency(self) -> bool:
        return self.name.endswith("LAT")

    @property
    def ways(self) -> int:
        """The divisor of a round trip for the latency: 2 for a ping-pong, in which both ends send."""
        return 1 if self.verb.is_answered else 2

    @property
    def usual_iterations(self) -> int:
        return 5000 if self is Test.WRITE_BW else 1000

    def depth(self, tx_depth: int = 0) -> int:
        """Return how many messages a queue pair has in flight."""
        return 1 if self.is_latency else tx_depth or 128

    def sizes(self, most_bytes: int, chosen: tuple[int, ...] = (), *, all_sizes: bool = False) -> tuple[int, ...]:
        """Return the message sizes to run; a datagram is one packet."""
        if all_sizes:
            return tuple(size for size in ALL_SIZES if size <= most_bytes)
        usual_bytes = WORD_BYTES if self.verb is Verb.ATOMIC else 2 if self.is_latency else 65_536
        return chosen or (min(usual_bytes, most_bytes),)

    def headline(self, *, bidirectional: bool, kind: str = "") -> str:
        quantity = "Latency" if self.is_latency else f"{'Bidirectional ' * bidirectional}BW"
        return f"                    {_TITLES[self.verb]} {kind}{quantity} Test"

    def check(self, connection: str, *, qps: int, bidirectional: bool) -> None:
        """Raise ConfigError for options that the transport or a latency test does not support."""
        if self.is_latency and (qps > 1 or bidirectional):
            raise ConfigError(f"{self} has one message in flight: leave out -q and -b")
        if connection == Connection.UD and self.verb is not Verb.SEND:
            raise ConfigError(f"{self} cannot run on datagrams: use ib_send_{self.rpartition('_')[2]}, or -c RC")
        if connection == Connection.UC and self.verb.is_answered:
            raise ConfigError(f"{self} needs responses, which only RC has: use -c RC")


def check_limits(settings: Any, limits: dict[str, tuple[int, int]] = LIMITS) -> None:
    """Raise ConfigError for numbers out of range, except for defaults."""
    for field in fields(settings):
        value, (least, most) = getattr(settings, field.name), limits.get(field.name, (0, 0))
        if field.name in limits and value != field.default and not (isinstance(value, int) and least <= value <= most):
            raise ConfigError(f"{field.name} {value} is not from {least:,} to {most:,}")


_TITLES = {Verb.WRITE: "RDMA_Write", Verb.READ: "RDMA_Read", Verb.SEND: "Send", Verb.ATOMIC: "Atomic"}


def parse_test(name: str, *others: str) -> Test:
    """Parse the name of a test, `ib_write_bw` or `write_bw`; `others` are further names for the error message."""
    try:
        return Test(name)
    except ValueError:
        known = [test if name.startswith("ib_") else test.removeprefix("ib_") for test in Test]
        raise UnknownName("test", name, [*known, *others]) from None
