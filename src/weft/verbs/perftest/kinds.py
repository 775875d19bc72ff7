"""The tests of perftest, for the simulator and for those that really run: what each does and takes for granted."""

from __future__ import annotations

import enum
from dataclasses import fields
from typing import Any

from weft.errors import ConfigError, UnknownName

LIMITS = {  # of perftest's options, least and most
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
ALL_SIZES = tuple(2**power for power in range(1, 24))  # what `-a` means
WORD_BYTES = 8  # of an atomic


class Verb(enum.StrEnum):
    WRITE = "write"
    READ = "read"
    SEND = "send"
    ATOMIC = "atomic"

    @property
    def is_answered(self) -> bool:
        """Does the one who asks learn all, and the other end nothing?"""
        return self in (Verb.READ, Verb.ATOMIC)


class Connection(enum.StrEnum):
    RC = "RC"
    UC = "UC"
    UD = "UD"


class Test(enum.StrEnum):
    __test__ = False  # pytest: this is none of yours

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
        """`write_bw`, as everybody says."""
        return next((one for one in cls if one == f"ib_{value}"), None)

    @property
    def verb(self) -> Verb:
        return Verb[self.name.partition("_")[0]]

    @property
    def is_latency(self) -> bool:
        return self.name.endswith("LAT")

    @property
    def ways(self) -> int:
        """Of a round trip, which its latency is divided by: the other end of a ping-pong sends as well."""
        return 1 if self.verb.is_answered else 2

    @property
    def usual_iterations(self) -> int:
        return 5000 if self is Test.WRITE_BW else 1000

    def depth(self, tx_depth: int = 0) -> int:
        """Messages that a queue pair has under way."""
        return 1 if self.is_latency else tx_depth or 128

    def sizes(self, most_bytes: int, given: tuple[int, ...] = (), *, all_sizes: bool = False) -> tuple[int, ...]:
        """Of the messages, one after the other; a datagram is one packet."""
        if all_sizes:
            return tuple(size for size in ALL_SIZES if size <= most_bytes)
        usual_bytes = WORD_BYTES if self.verb is Verb.ATOMIC else 2 if self.is_latency else 65_536
        return given or (min(usual_bytes, most_bytes),)

    def headline(self, *, bidirectional: bool, kind: str = "") -> str:
        what = "Latency" if self.is_latency else f"{'Bidirectional ' * bidirectional}BW"
        return f"                    {_TITLES[self.verb]} {kind}{what} Test"

    def check(self, connection: str, *, qps: int, bidirectional: bool) -> None:
        """Refuse what the transport cannot do, and what a ping-pong has no use for."""
        if self.is_latency and (qps > 1 or bidirectional):
            raise ConfigError(f"{self} has one message under way: leave out -q and -b")
        if connection == Connection.UD and self.verb is not Verb.SEND:
            raise ConfigError(f"{self} cannot run on datagrams: use ib_send_{self.rpartition('_')[2]}, or -c RC")
        if connection == Connection.UC and self.verb.is_answered:
            raise ConfigError(f"{self} needs an answer, which only RC gives: use -c RC")


def check_limits(settings: Any, limits: dict[str, tuple[int, int]] = LIMITS) -> None:
    """Refuse numbers out of range; a default may be: it means as usual."""
    for field in fields(settings):
        value, (least, most) = getattr(settings, field.name), limits.get(field.name, (0, 0))
        if field.name in limits and value != field.default and not (isinstance(value, int) and least <= value <= most):
            raise ConfigError(f"{field.name} {value} is not from {least:,} to {most:,}")


_TITLES = {Verb.WRITE: "RDMA_Write", Verb.READ: "RDMA_Read", Verb.SEND: "Send", Verb.ATOMIC: "Atomic"}


def parse_test(name: str, *others: str) -> Test:
    """`ib_write_bw` as the program is called, or `write_bw`; `others` are what could be meant too."""
    try:
        return Test(name)
    except ValueError:
        known = [test if name.startswith("ib_") else test.removeprefix("ib_") for test in Test]
        raise UnknownName("test", name, [*known, *others]) from None
