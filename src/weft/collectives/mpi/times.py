"""The constants of MPI, read from `catalog/mpi_times.toml`, which explains the fields."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import msgspec

from weft.calibration import band as calibration
from weft.fabric.rates import Sourced, read_catalog


class Message(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    send_us: float
    receive_us: float
    copy_gbyte_s: float
    copy_bytes: int
    rendezvous_us: float


class Stream(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    gbyte_s: float


class Tcp(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    send_us: float
    receive_us: float
    rendezvous_us: float
    copy_gbyte_s: float
    crowd_us: float
    stream_us: float


class Registration(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    overhead_us: float
    ns_per_byte: float

    def us(self, size_bytes: float) -> float:
        return self.overhead_us + size_bytes * self.ns_per_byte / 1e3


class Shared(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    send_us: float
    receive_us: float
    flight_us: float
    crowd_ns: float
    eager_bytes: int
    rendezvous_us: float
    core_gbyte_s: float
    node_gbyte_s: float
    reduce_gbyte_s: float


class Adapter(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    message_ns: float


class Sharp(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    level_us: float
    rate: float


class Srd(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    eager_bytes: int
    window_bytes: int
    stream_us: float


class Datagrams(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    rank_us: float
    most_connected: int


class Pods(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    square_us: float
    stream_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Band(calibration.Band):
    """The band of a kind of figures."""

    ranks: int  # the most that were published
    worst: float  # largest published slowdown


class MpiTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    message: Message
    stream: dict[str, Stream]
    tcp: Tcp
    registration: Registration
    shared: Shared
    adapter: Adapter
    sharp: Sharp
    srd: Srd
    datagrams: Datagrams
    pods: Pods
    band: dict[str, Band]

    def stream_gbyte_s(self, adapter: str) -> float:
        """Return the memory bandwidth of a server with such an adapter."""
        return self.stream.get(adapter, self.stream["default"]).gbyte_s


@cache
def times() -> MpiTimes:
    return msgspec.convert(read_catalog("mpi_times.toml"), MpiTimes)
