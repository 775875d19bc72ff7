"""The rules of each network, as figures for one engine: headers, flow control, paths, congestion control."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.errors import ConfigError
from weft.fabric.joined import joined_links
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology, speeds
from weft.sim.congestion import CONTROLS, Control
from weft.sim.engine import CongestionControl, Network, Options, Paths
from weft.sim.layout.congestion import is_set
from weft.sim.layout.records import Flow
from weft.wire.crc import ICRC_BYTES, VCRC_BYTES
from weft.wire.headers import AETH, BTH, GRH, LRH
from weft.wire.roce import FRAMING_BYTES, UDP, Ethernet, IPv4

_FRAME_BYTES = Ethernet.size + FRAMING_BYTES
_TCP_BYTES = 20 + 12  # with timestamps
_KDETH_BYTES = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What sets one network apart from the others."""

    technology: Technology
    flow: Flow
    paths: Paths
    congestion_control: CongestionControl
    header_bytes: int  # of every packet on the wire
    mtu_bytes: int
    largest_mtu_bytes: int


_INFINIBAND = Rules(
    technology=Technology.INFINIBAND,
    flow=Flow.CREDITS,
    paths=Paths.TABLE,
    congestion_control=CongestionControl.NONE,
    header_bytes=LRH.size + BTH.size + ICRC_BYTES + VCRC_BYTES,
    mtu_bytes=4096,
    largest_mtu_bytes=4096,
)
_ROCE = Rules(
    technology=Technology.ETHERNET,
    flow=Flow.PAUSE,
    paths=Paths.ECMP,
    congestion_control=CongestionControl.DCQCN,
    header_bytes=_FRAME_BYTES + IPv4.size + UDP.size + BTH.size + ICRC_BYTES,
    mtu_bytes=4096,
    largest_mtu_bytes=4096,
)
RULES = {
    Network.INFINIBAND: _INFINIBAND,
    Network.OMNI_PATH: replace(
        _INFINIBAND,
        technology=Technology.OMNI_PATH,
        header_bytes=LRH.size + BTH.size + _KDETH_BYTES + ICRC_BYTES,
        mtu_bytes=8192,
        largest_mtu_bytes=10_240,
    ),
    Network.ROCE: _ROCE,
    Network.ROCE_V1: replace(_ROCE, header_bytes=_FRAME_BYTES + GRH.size + BTH.size + ICRC_BYTES),
    Network.TCP: replace(
        _ROCE,
        flow=Flow.DROP,
        congestion_control=CongestionControl.NONE,
        header_bytes=_FRAME_BYTES + IPv4.size + _TCP_BYTES,
        mtu_bytes=8960,
        largest_mtu_bytes=8960,
    ),
}


def fill_in(fabric: Fabric, options: Options) -> tuple[Options, Rules]:
    """Options with every default chosen, and the rules of their network; refuses what does not go together."""
    network = options.network or _usual_network(fabric)
    rules = RULES[network]
    if not (fabric.links_of(rules.technology).any() or _has_gpu_hosts(fabric)):
        raise ConfigError(
            f"network {network} needs {rules.technology} links, {fabric.spec} has none: speed=400GbE, say"
        )
    obeyed = CongestionControl.IB if network is Network.INFINIBAND and is_set(fabric) else rules.congestion_control
    chosen = options.congestion_control or obeyed
    takes = control(chosen, network).networks
    if network not in takes:
        usual = rules.congestion_control
        raise ConfigError(f"congestion control {chosen} is for {' and '.join(takes)}, not for {network}: use {usual}")
    mtu_bytes = options.mtu_bytes or rules.mtu_bytes
    if not 256 <= mtu_bytes <= rules.largest_mtu_bytes:
        raise ConfigError(f"--mtu {mtu_bytes} is not from 256 to {rules.largest_mtu_bytes}, what {network} carries")
    paths = options.paths or rules.paths
    if paths is not Paths.TABLE and "ar_group" not in vars(fabric.tables):
        raise ConfigError(
            f"paths {paths} needs port groups, and the tables of {fabric.spec} have none: "
            f"route with Options(adaptive=True), or run with paths table"
        )
    filled = replace(options, network=network, paths=paths, congestion_control=chosen, mtu_bytes=mtu_bytes)
    return filled, rules


def _usual_network(fabric: Fabric) -> Network:
    """The network that most of the links outside the servers speak."""
    usual = {
        Technology.INFINIBAND: Network.INFINIBAND,
        Technology.ETHERNET: Network.ROCE,
        Technology.OMNI_PATH: Network.OMNI_PATH,
    }
    found = [speeds()[i].technology for i in fabric.links.speed[fabric.network_links].tolist()]
    if not found and _has_gpu_hosts(fabric):
        return Network.INFINIBAND  # credits, as NVLink has them
    if not found:
        raise ConfigError(f"{fabric.spec} has no network cable: there is nothing to run on")
    return usual[max(set(found), key=found.count)]


def _has_gpu_hosts(fabric: Fabric) -> bool:
    """Are its GPUs joined inside their servers?"""
    return bool(joined_links(fabric).any())


def control(name: str, network: Network) -> Control:
    """That of this name; TCP has one of its own accord."""
    own = network is Network.TCP and name == CongestionControl.NONE
    return CONTROLS[CongestionControl.RENO if own else name]


def ack_bytes(rules: Rules) -> int:
    return rules.header_bytes + (0 if rules.flow is Flow.DROP else AETH.size)
