"""Define the options of perftest's tests: those of both ends, and those of each end. The names are perftest's."""

from __future__ import annotations

import argparse
import enum
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from weft.errors import ConfigError, find_named
from weft.units import parse_size_bytes
from weft.verbs.perftest.arguments import Arguments, number
from weft.verbs.perftest.kinds import LIMITS, WORD_BYTES, Connection, Test, Verb, check_limits

T = TypeVar("T")
LARGEST_BYTES = 1 << 30
MTUS = (256, 512, 1024, 2048, 4096)
_INLINE_BYTES = {"write": 220, "send": 236}  # perftest's choice for latency tests


class Atomic(enum.StrEnum):
    FETCH_AND_ADD = "FETCH_AND_ADD"
    CMP_AND_SWAP = "CMP_AND_SWAP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of both ends. The client chooses; a server with other options refuses."""

    test: Test
    sizes: tuple[int, ...] = ()  # else 64K, latency tests 2, atomics always 8
    all_sizes: bool = False
    iterations: int = 0  # per queue pair; else 1000, ib_write_bw 5000
    duration_s: int = 0  # else `iterations`
    connection: Connection = Connection.RC
    qps: int = 1
    tx_depth: int = 0  # else 128, latency tests 1
    rx_depth: int = 512
    cq_mod: int = 0  # messages for one completion; else 100 below 8 KiB, and 1
    outs: int = 16
    inline_bytes: int = -1  # else as perftest has it: latency tests some 200
    mtu_bytes: int = 0  # else the smaller one of both ports
    sl: int = 0
    qp_timeout: int = 17  # perftest's 14 (67 ms) is short for an adapter in software
    atomic: Atomic = Atomic.FETCH_AND_ADD
    bidirectional: bool = False

    def __post_init__(self) -> None:
        check_limits(self)
        for size_bytes in self.sizes:
            if not isinstance(size_bytes, int) or not 1 <= size_bytes <= LARGEST_BYTES:
                raise ConfigError(f"size {size_bytes} is not from 1 byte to 1 GiB")
        if self.mtu_bytes and self.mtu_bytes not in MTUS:
            raise ConfigError(f"-m {self.mtu_bytes} is not one of {', '.join(map(str, MTUS))}")
        self._check_together()

    def _check_together(self) -> None:
        verb, test = self.test.verb, self.test
        test.check(self.connection, qps=self.qps, bidirectional=self.bidirectional)
        if self.connection is not Connection.RC and self.bidirectional and verb is Verb.SEND:
            raise ConfigError(f"{test} -b counts arrivals, and {self.connection} may lose messages: use -c RC")
        if self.sizes and self.all_sizes:
            raise ConfigError("-a runs all sizes: leave out -s, or -a")
        if verb is Verb.ATOMIC and (self.all_sizes or self.sizes not in ((), (WORD_BYTES,))):
            raise ConfigError(f"{test} always uses 8 bytes: leave out -s and -a")

    # -- defaults -----------------------------------------------------------------------------------------------------

    @property
    def verb(self) -> Verb:
        return self.test.verb

    def sizes_over(self, mtu_bytes: int) -> tuple[int, ...]:
        """Return the message sizes. Raise ConfigError for a datagram larger than one packet."""
        most = mtu_bytes if self.connection is Connection.UD else LARGEST_BYTES
        for size_bytes in self.sizes:
            if size_bytes > most:
                raise ConfigError(f"size {size_bytes}: a datagram has at most {most} bytes on this path")
        return self.test.sizes(most, self.sizes, all_sizes=self.all_sizes)

    @property
    def count(self) -> int:
        return self.iterations or self.test.usual_iterations

    @property
    def depth(self) -> int:
        return self.test.depth(self.tx_depth)

    @property
    def inline_max_bytes(self) -> int:
        if self.verb.is_answered:
            return 0
        return self.inline_bytes if self.inline_bytes >= 0 else _INLINE_BYTES[self.verb] * self.test.is_latency

    def messages_per_completion(self, size_bytes: int) -> int:
        """Return the number of messages per completion, at most those in flight."""
        return min(self.cq_mod or (100 if size_bytes <= 8192 else 1), self.depth)

    # -- comparison ---------------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Plan:
        """Return the plan that the peer sent."""
        try:
            kinds = {"test": Test, "connection": Connection, "atomic": Atomic, "sizes": tuple}
            return cls(**{name: kinds[name](value) if name in kinds else value for name, value in facts.items()})
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the peer is another version of weft: {error}") from error

    def check_against(self, client: Plan) -> None:
        """Raise ConfigError if the options of a client differ from those of this server."""
        if self.test is not client.test:
            raise ConfigError(f"the server is {self.test}, the client {client.test}: start the same at both ends")
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(client, field.name)
            if field.default is not MISSING and ours not in (field.default, theirs):
                raise ConfigError(f"{field.name}: the server has {ours}, the client {theirs}: give both the same")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointArguments:
    """The options of one end."""

    host: str = ""  # server to connect to; empty: be the server
    port: int
    bind: str
    device: str = ""
    ib_port: int = 1
    gid_index: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """The output format of an end."""

    gbits: bool = False
    no_peak: bool = False
    json: bool = False


_MIN_ITERATIONS = 5
_EPILOG = "Start the server first, without a host; then the client with the server's name."


def parse(test: Test, words: Sequence[str]) -> tuple[Plan, EndpointArguments, Style]:
    """Parse the options of perftest that weft supports."""
    arguments = _arguments(test).parse_args(list(words))
    return (
        create_from(arguments, Plan, test=test),
        create_from(arguments, EndpointArguments),
        create_from(arguments, Style),
    )


def create_from(arguments: argparse.Namespace, kind: type[T], **more: Any) -> T:
    """Create a dataclass from the arguments with the names of its fields, and from more values."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in vars(arguments).items() if name in names}, **more)


def _arguments(test: Test) -> Arguments:
    parser = Arguments(test, f"perftest's {test} over weft's adapter.", _EPILOG)
    parser.argument_default = argparse.SUPPRESS  # `Plan` has the defaults
    parser.add_connection()
    for letter, option, field, text in _NUMBERS:
        least, most = LIMITS[field]
        least = max(least, _MIN_ITERATIONS) if field == "iterations" else least
        parser.add_argument(letter, f"--{option}", dest=field, type=number(option, least, most), help=text)
    parser.add_argument("-a", "--all", dest="all_sizes", action="store_true", help="sizes from 2 bytes to 8 MiB")
    parser.add_argument(
        "-A", "--atomic_type", dest="atomic", type=_one_of("atomic type", Atomic), help="or CMP_AND_SWAP"
    )
    parser.add_argument("-b", "--bidirectional", action="store_true", help="both ends send; the figures are the sums")
    parser.add_argument("-c", "--connection", type=_one_of("connection type", Connection), help="RC, UC or UD")
    parser.add_argument("-F", "--CPU-freq", action="store_true", help="accepted, ignored")
    parser.add_argument("-N", "--noPeak", dest="no_peak", action="store_true", help="do not compute the peak")
    parser.add_argument("-s", "--size", dest="sizes", type=_sizes, help="bytes, 64K; or several, 2,4K,1M")
    parser.add_argument("-x", "--gid-index", type=number("gid-index", 0, 254), help="of this end's port")
    parser.add_argument("--report_gbits", dest="gbits", action="store_true", help="Gb/sec, not MiB/sec")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return parser


_NUMBERS = (
    ("-D", "duration", "duration_s", "seconds, instead of -n"),
    ("-I", "inline_size", "inline_bytes", "bytes sent inline"),
    ("-n", "iters", "iterations", "messages per queue pair"),
    ("-o", "outs", "outs", "READs or atomics in flight"),
    ("-q", "qp", "qps", "queue pairs"),
    ("-Q", "cq-mod", "cq_mod", "messages per completion"),
    ("-r", "rx-depth", "rx_depth", "receives posted"),
    ("-S", "sl", "sl", "service level"),
    ("-t", "tx-depth", "tx_depth", "messages in flight"),
    ("-u", "qp-timeout", "qp_timeout", "4.096 us * 2^this (default 17)"),
)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(parse_size_bytes(size) for size in text.split(","))


def _one_of(title: str, kind: type[enum.StrEnum]) -> Callable[[str], enum.StrEnum]:
    return lambda name: find_named(title, name, kind.__members__)
