"""What `weft sim` can be told, in three groups; a string below a field is its help, with the default in brackets."""

from __future__ import annotations

from dataclasses import dataclass

from weft.cli.arguments import TABLES, File, Form, Whole


@dataclass(frozen=True, kw_only=True)
class Messages:
    """What is sent."""

    size: str | None = None
    """Of each message: 8, 64K, 1M. [1M; uniform 4K]"""
    load: float | None = None
    """uniform: payload that every host offers, as a share of its line rate. [0.5]"""
    duration_us: float | None = None
    """uniform: messages start for so long. [100]"""
    senders: Whole | None = None
    """incast: how many send to the one. [8] multicast: how many members send. [1]"""
    receiver: str | None = None
    """incast: to whom. [the first host]"""
    by: Whole | None = None
    """shift: places from sender to receiver. [1]"""
    sl: Whole | None = None
    """Service level; else as the path says."""
    operation: str | None = None
    """write, send or read. [write]"""
    transport: str | None = None
    """rc, uc or ud. [rc]"""


@dataclass(frozen=True, kw_only=True)
class Network:
    """What it runs on, and how."""

    network: str | None = None
    """infiniband, roce, roce-v1, tcp or omni-path. [as the links speak; Ethernet is roce]"""
    paths: str | None = None
    """table, adaptive, ecmp or spray; with --sweep-load several, by commas. [table; ecmp on Ethernet]"""
    switching: str = "cut-through"
    """cut-through or store-and-forward."""
    congestion_control: str | None = None
    """none, ib, dcqcn or reno. [dcqcn on roce, else none; tcp has reno of its own accord]"""
    memory: str = "host"
    """Where the data lies: host, gpudirect or staged."""
    routed: bool = False
    """With --network roce-v1: every leaf is an IP subnet of its own, which such packets cannot leave."""
    mtu: Whole = 0
    """Payload of a packet in bytes. [4096; tcp 8960, omni-path 8192]"""
    buffer: str | None = None
    """Input buffer of a port for each VL: 64K. [two round trips of the link and four packets]"""
    skip_tolerance: float = 0.0
    """Carry rates forward that are steady within this part; 0 runs every packet."""
    routing_engine: str | None = None
    """Route the fabric with this engine, whatever tables it has. [its tables, else auto]"""
    tables: File = None
    """OpenSM's dumps: a folder with opensm.fdbs or opensm-lfts.dump, and opensm.psl and opensm.slvl if there are
    several lanes; or one file of routes."""
    seed: Whole = 1
    """Of random traffic, of hashes, of bit errors."""


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What is written."""

    watch: str | None = None
    """Ports whose output queue is sampled: leaf1/3,leaf2/1."""
    watch_every_us: float | None = None
    """How often. [1]"""
    plot_queue: File = None
    """Those queues over time, .png, .svg or .pdf."""
    picture: File = None
    """The fabric, links coloured by utilisation: .png, .svg, .pdf or .html."""
    sweep_load: str | None = None
    """Run uniform traffic at each of these loads: 0.1,0.5,0.9."""
    plot_latency: File = None
    """Latency against load of a sweep, .png, .svg or .pdf."""
    write_traffic: File = None
    """Keep the traffic in a file, .csv or .json, that --traffic takes."""
    form: Form = TABLES


NO_MESSAGES, NO_NETWORK, NO_OUTPUTS = Messages(), Network(), Outputs()  # nothing was given
