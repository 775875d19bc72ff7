"""The rules of each network: headers, flow control, paths, congestion control."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.errors import ConfigError
from weft.fabric.joined import joined_links
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology, speeds
from weft.sim.adaptive import POLICIES
from weft.sim.congestion import CONTROLS, Control
from weft.sim.engine import CongestionControl, FullQueue, Network, Options, Paths
from weft.sim.layout.congestion import is_set
from weft.sim.layout.records import FlowControl, Selection
from weft.wire.crc import ICRC_BYTES, VCRC_BYTES
from weft.wire.headers import AETH, BTH, GRH, LRH
from weft.wire.roce import FRAMING_BYTES, UDP, Ethernet, IPv4
from weft.wire.uet import PdsAck, PdsAckState, PdsRequest, SesRequest, SesResponse

OVERTAKING = (Selection.BY_PACKET, Selection.DETOUR)  # packets of one queue pair take several paths
_FRAME_BYTES = Ethernet.size + FRAMING_BYTES
_TCP_BYTES = 20 + 12  # with timestamps
_KDETH_BYTES = 36
_LOCAL_BYTES = LRH.size + BTH.size + ICRC_BYTES + VCRC_BYTES
_OPA_BYTES = LRH.size + BTH.size + _KDETH_BYTES + ICRC_BYTES
_ROUTABLE_BYTES = _FRAME_BYTES + IPv4.size + UDP.size + BTH.size + ICRC_BYTES
_ROCE_V1_BYTES = _FRAME_BYTES + GRH.size + BTH.size + ICRC_BYTES
_UET_BYTES = _FRAME_BYTES + IPv4.size + UDP.size


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
    ack_bytes: int  # on the wire
    full_queue: FullQueue | None = None  # for the rules of Ultra Ethernet: `weft.sim.packet.uet`

    @property
    def uet(self) -> bool:
        """Tell whether the transport has the rules of Ultra Ethernet."""
        return self.full_queue is not None


_INFINIBAND = Rules(
    technology=Technology.INFINIBAND,
    flow=FlowControl.CREDITS,
    paths=Paths.TABLE,
    congestion_control=CongestionControl.NONE,
    header_bytes=_LOCAL_BYTES,
    ack_bytes=_LOCAL_BYTES + AETH.size,
    mtu_bytes=4096,
    largest_mtu_bytes=4096,
)
_ROCE = Rules(
    technology=Technology.ETHERNET,
    flow=FlowControl.PAUSE,
    paths=Paths.ECMP,
    congestion_control=CongestionControl.DCQCN,
    header_bytes=_ROUTABLE_BYTES,
    ack_bytes=_ROUTABLE_BYTES + AETH.size,
    mtu_bytes=4096,
    largest_mtu_bytes=4096,
)
_UET = replace(
    _ROCE,
    flow=FlowControl.TRIM,
    full_queue=FullQueue.TRIM,
    paths=Paths.MIXED,
    congestion_control=CongestionControl.NSCC,
    header_bytes=_UET_BYTES + PdsRequest.size + SesRequest.size,
    ack_bytes=_UET_BYTES + PdsAck.size + PdsAckState.size + SesResponse.size,
)
_FAMILY = {Network.MRC: Network.UET, Network.SRD: Network.UET, Network.SPECTRUM_X: Network.ROCE}  # same controls
RULES = {
    Network.INFINIBAND: _INFINIBAND,
    Network.OMNI_PATH: replace(
        _INFINIBAND,
        technology=Technology.OMNI_PATH,
        header_bytes=_OPA_BYTES,
        ack_bytes=_OPA_BYTES + AETH.size,
        mtu_bytes=8192,
        largest_mtu_bytes=10_240,
    ),
    Network.ROCE: _ROCE,
    Network.ROCE_V1: replace(_ROCE, header_bytes=_ROCE_V1_BYTES, ack_bytes=_ROCE_V1_BYTES + AETH.size),
    Network.SPECTRUM_X: replace(_ROCE, paths=Paths.ADAPTIVE, congestion_control=CongestionControl.SPECTRUM_X),
    Network.UET: _UET,
    # By the parts of Ultra Ethernet: of their constants and headers too little is published.
    Network.MRC: replace(_UET, paths=Paths.BITMAP, header_bytes=_ROUTABLE_BYTES, ack_bytes=_ROUTABLE_BYTES + AETH.size),
    Network.SRD: replace(_UET, paths=Paths.REPS, full_queue=FullQueue.DROP),
    Network.TCP: replace(
        _ROCE,
        flow=FlowControl.DROP,
        congestion_control=CongestionControl.NONE,
        header_bytes=_FRAME_BYTES + IPv4.size + _TCP_BYTES,
        ack_bytes=_FRAME_BYTES + IPv4.size + _TCP_BYTES,
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
    if _FAMILY.get(network, network) not in supported:
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
    if not rules.uet:
        _refuse_uet(options, network, str(paths))
    full_queue = options.full_queue or rules.full_queue
    if full_queue is FullQueue.CREDITS:
        rules = replace(rules, flow=FlowControl.CREDITS)
    if options.in_order:
        _check_order(fabric, POLICIES[str(paths)].selection, network, rules)
    filled = replace(options, network=network, paths=paths, congestion_control=chosen, mtu_bytes=mtu_bytes)
    return replace(filled, full_queue=full_queue), rules


def _refuse_uet(options: Options, network: Network, paths: str) -> None:
    """Refuse options of Ultra Ethernet on another network."""
    given = {
        "--full-queue": options.full_queue,
        "--link-retry": options.link_retry,
        "--ack-every": options.ack_every_bytes,
    }
    for flag, value in given.items():
        if value:
            raise ConfigError(f"{flag} changes nothing on {network}: it is for --network uet. Leave it out")
    if POLICIES[paths].entropy:
        raise ConfigError(
            f"--paths {paths} is for --network uet, whose senders choose it, not for {network}: use spray"
        )


def _check_order(fabric: Fabric, selection: Selection, network: Network, rules: Rules) -> None:
    """Refuse placement in order where it changes nothing."""
    if network is Network.TCP or rules.uet:
        raise ConfigError(f"--in-order changes nothing: {network.upper()} puts its bytes in order itself. Leave it out")
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
