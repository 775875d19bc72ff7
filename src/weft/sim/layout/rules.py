"""The rules of each network: headers, flow control, paths, congestion control."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.errors import ConfigError
from weft.fabric.joined import joined_links
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology, speeds
from weft.sim.adaptive import POLICIES
from weft.sim.congestion import CONTROLS, Control
from weft.sim.engine import CongestionControl, Network, Options, Paths
from weft.sim.layout.congestion import is_set
from weft.sim.layout.records import FlowControl, Selection
from weft.wire.crc import ICRC_BYTES, VCRC_BYTES
from weft.wire.headers import AETH, BTH, GRH, LRH
from weft.wire.roce import FRAMING_BYTES, UDP, Ethernet, IPv4

OVERTAKING = (Selection.BY_PACKET, Selection.DETOUR)  # packets of one queue pair take several paths
_FRAME_BYTES = Ethernet.size + FRAMING_BYTES
_TCP_BYTES = 20 + 12  # with timestamps
_KDETH_BYTES = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The parameters that distinguish one network from the others."""

    technology: Technology
    flow: FlowControl
    paths: Paths
    congestion_control: CongestionControl
    header_bytes: int  # per packet on the wire
    mtu_bytes: int
    largest_mtu_bytes: int


_INFINIBAND = Rules(
    technology=Technology.INFINIBAND,
    flow=FlowControl.CREDITS,
    paths=Paths.TABLE,
    congestion_control=CongestionControl.NONE,
    header_bytes=LRH.size + BTH.size + ICRC_BYTES + VCRC_BYTES,
    mtu_bytes=4096,
    largest_mtu_bytes=4096,
)
_ROCE = Rules(
    technology=Technology.ETHERNET,
    flow=FlowControl.PAUSE,
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
        flow=FlowControl.DROP,
        congestion_control=CongestionControl.NONE,
        header_bytes=_FRAME_BYTES + IPv4.size + _TCP_BYTES,
        mtu_bytes=8960,
        largest_mtu_bytes=8960,
    ),
}


def fill_in(fabric: Fabric, options: Options) -> tuple[Options, Rules]:
    """Return the options with every default filled in, and the rules of their network.

    Raise ConfigError on a conflict.
    """
    network = options.network or _default_network(fabric)
    rules = RULES[network]
    if not (fabric.links_of(rules.technology).any() or _has_gpu_hosts(fabric)):
        raise ConfigError(
            f"--network {network} needs {rules.technology} links, and {fabric.spec} has none: use speed=400GbE, say"
        )
    obeyed = CongestionControl.IB if network is Network.INFINIBAND and is_set(fabric) else rules.congestion_control
    chosen = options.congestion_control or obeyed
    supported = control(chosen, network).networks
    if network not in supported:
        default = rules.congestion_control
        raise ConfigError(
            f"congestion control {chosen} is for {' and '.join(supported)}, not for {network}: use {default}"
        )
    mtu_bytes = options.mtu_bytes or rules.mtu_bytes
    if not 256 <= mtu_bytes <= rules.largest_mtu_bytes:
        raise ConfigError(f"--mtu must be 256 to {rules.largest_mtu_bytes} on {network}, got {mtu_bytes}")
    paths = options.paths or rules.paths
    if POLICIES[str(paths)].selection >= Selection.BY_FLOW and "ar_group" not in vars(fabric.tables):
        raise ConfigError(
            f"--paths {paths} needs port groups, and the tables of {fabric.spec} have none: "
            f"route with --adaptive (Options(adaptive=True)), or use --paths table"
        )
    if options.in_order:
        _check_order(fabric, POLICIES[str(paths)].selection, network)
    filled = replace(options, network=network, paths=paths, congestion_control=chosen, mtu_bytes=mtu_bytes)
    return filled, rules


def _check_order(fabric: Fabric, selection: Selection, network: Network) -> None:
    """Refuse placement in order where it changes nothing."""
    if network is Network.TCP:
        raise ConfigError("--in-order changes nothing: TCP puts its bytes in order itself. Leave it out")
    if fabric.planes == 1 and selection not in OVERTAKING:
        raise ConfigError(
            "--in-order changes nothing: packets of a queue pair take one path here. Add --paths adaptive, or leave it "
            "out"
        )


def _default_network(fabric: Fabric) -> Network:
    """Return the network of most links outside the servers."""
    networks = {
        Technology.INFINIBAND: Network.INFINIBAND,
        Technology.ETHERNET: Network.ROCE,
        Technology.OMNI_PATH: Network.OMNI_PATH,
    }
    technologies = [speeds()[i].technology for i in fabric.links.speed[fabric.network_links].tolist()]
    if not technologies and _has_gpu_hosts(fabric):
        return Network.INFINIBAND  # credits, as on NVLink
    if not technologies:
        raise ConfigError(f"{fabric.spec} has no network cables")
    return networks[max(set(technologies), key=technologies.count)]


def _has_gpu_hosts(fabric: Fabric) -> bool:
    """Return whether GPUs are connected inside their servers."""
    return bool(joined_links(fabric).any())


def control(name: str, network: Network) -> Control:
    """Return the congestion control of this name; on TCP, none means Reno."""
    own = network is Network.TCP and name == CongestionControl.NONE
    return CONTROLS[CongestionControl.RENO if own else name]


def ack_bytes(rules: Rules) -> int:
    return rules.header_bytes + (0 if rules.flow is FlowControl.DROP else AETH.size)
