"""The options of `weft sim`, in groups; the string below a field is its help, with the default in brackets."""

from __future__ import annotations

from dataclasses import dataclass

from weft.cli.arguments import TABLES, File, Form, RoutingEngine, Whole


@dataclass(frozen=True, kw_only=True)
class Messages:
    """The traffic options."""

    size: str | None = None
    """Message size: 8, 64K, 1M. [1M; uniform 4K]"""
    load: float | None = None
    """uniform, adversarial, tornado: payload offered by each host, as a fraction of its line rate. [0.5]"""
    duration_us: float | None = None
    """uniform, adversarial, tornado: microseconds during which messages start. [100]"""
    senders: Whole | None = None
    """Number of senders: of incast [8], of multicast [1]."""
    receiver: str | None = None
    """incast: the receiving host. [the first host]"""
    distance: Whole | None = None
    """Distance from sender to receiver: shift: in the list of hosts; adversarial: in groups. [1]"""
    sl: Whole | None = None
    """Service level. [that of the path]"""
    operation: str | None = None
    """write, send or read. [write]"""
    transport: str | None = None
    """rc, uc or ud. [rc]"""


@dataclass(frozen=True, kw_only=True)
class Network:
    """The network options."""

    network: str | None = None
    """Protocol: infiniband, omni-path, roce, roce-v1, tcp; uet (Ultra Ethernet), spectrum-x, mrc or srd. [that of the
    links; roce on Ethernet]"""
    paths: str | None = None
    """Choice of paths: table (or minimal), adaptive, ecmp, spray; valiant, ugal, par (dragonfly, torus, HyperX); lmc
    (add --lmc); oblivious, bitmap, reps, mixed (uet, mrc, srd); with --sweep-load several, separated by commas.
    [table; ecmp on Ethernet, mixed on uet, bitmap on mrc, reps on srd, adaptive on spectrum-x]"""
    lmc: Whole | None = None
    """Assign 2**LMC LIDs, hence paths, to each host port; with --paths lmc messages take turns among them. 1 to 7."""
    plane_choice: str | None = None
    """Adapters with several planes: the unit that takes one of them: packet, message or queue-pair. [packet]"""
    in_order: bool = False
    """Adapters without out-of-order placement: a packet that overtakes another on a second path looks like a loss, and
    with planes each queue pair takes one."""
    full_queue: str | None = None
    """With --network uet, mrc or srd: a full switch queue does this: trim, drop, or credits (of links, so that it
    is never full). [trim; drop on srd]"""
    link_retry: bool = False
    """With --network uet, mrc or srd: links send packets with bit errors again (link-level retry)."""
    ack_every: str | None = None
    """With --network uet, mrc or srd: bytes received without an acknowledgement. [16K]"""
    switching: str = "cut-through"
    """cut-through or store-and-forward."""
    crossbar: str | None = None
    """output-queued, or one-read-port: an input sends one packet at a time on each VL. [output-queued]"""
    congestion_control: str | None = None
    """none, ib, dcqcn, spectrum-x, hpcc, swift, timely, credits (of the receiver), reno, dctcp, nscc, rccc or
    nscc-rccc. [dcqcn on roce, spectrum-x on it, reno on tcp, nscc on uet, mrc and srd, none on others]"""
    memory: str = "host"
    """Location of the payload: host, gpudirect or staged."""
    routed: bool = False
    """With --network roce-v1: each leaf is a separate IP subnet, which RoCE v1 packets cannot leave."""
    mtu: Whole = 0
    """Bytes of payload per packet. [4096; tcp 8960, omni-path 8192]"""
    buffer: str | None = None
    """Input buffer of a port per VL: 64K. [two round trips of the link plus four packets]"""
    skip_tolerance: float = 0.0
    """Extrapolate rates that are steady within this relative tolerance; 0 simulates each packet."""
    fault: tuple[str, ...] = ()
    """A fault: of a cable during the run, cut:leaf1/33@20us-80us or slow:leaf1/33=1xNDR@20us-80us; without an end,
    @20us-, until the run ends. Repeat it for several."""
    routing_engine: RoutingEngine | None = None
    tables: File = None
    """Forwarding tables dumped by OpenSM: a folder with opensm.fdbs or opensm-lfts.dump, with opensm.psl and
    opensm.slvl if several VLs are used; or one file of routes."""
    seed: Whole = 1
    """Random seed, for traffic, ECMP hashing and bit errors."""
    threads: Whole = 0
    """Threads of the packet engine, in fabrics of 256 hosts or more; results do not depend on it. [all cores]"""


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The results to record, print and write."""

    watch: str | None = None
    """Sample these ports: leaf1/3,leaf2/1; their queues, utilisation, pauses, credits and allowed rates."""
    watch_every_us: float | None = None
    """With --watch: microseconds between two samples. [1]"""
    capture: str | None = None
    """Record the packets of these ports, in both directions of their cables: leaf1/3,leaf2/1; with --write-capture."""
    write_capture: File = None
    """Write the packets of --capture to a file for Wireshark, .pcapng."""
    picture_queue: File = None
    """With --watch: draw the queues over time, .png, .svg or .pdf."""
    picture_watch: File = None
    """With --watch: draw utilisation, pauses, credits and allowed rates over time, .png, .svg or .pdf."""
    picture_cdf: File = None
    """Draw the distribution of latency: that of messages, .png, .svg or .pdf."""
    picture: File = None
    """The picture to write: the fabric with links coloured by utilisation, .png, .svg, .pdf or .html; with --sweep-load
    latency against load."""
    sweep_load: str | None = None
    """Run uniform, adversarial or tornado traffic at each of these loads: 0.1,0.5,0.9."""
    write_traffic: File = None
    """Write the traffic to a file: .csv or .json for --traffic, .goal for `weft replay` and LogGOPSim."""
    write_messages: File = None
    """Write the times of all messages to a file, .csv or .parquet."""
    write_samples: File = None
    """With --watch: write the samples to a file, .csv."""
    form: Form = TABLES


NO_MESSAGES, NO_NETWORK, NO_OUTPUTS = Messages(), Network(), Outputs()  # the defaults
