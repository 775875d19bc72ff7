"""sminfo: the state of a subnet manager."""

from __future__ import annotations

from collections.abc import Sequence

from weft.diags.query import HERE, Target, get_smp, parse, parse_target
from weft.errors import ConfigError
from weft.mad.carrier import Carrier
from weft.wire.port_info import PortInfo
from weft.wire.smp import SMInfo, SmpAttribute

_STATES = ("SMINFO_NOTACT", "SMINFO_DISCOVER", "SMINFO_STANDBY", "SMINFO_MASTER")


def sminfo(carrier: Carrier, arguments: Sequence[str]) -> str:
    """Run sminfo [-D] [LID|PATH]; without arguments, for the manager of this port."""
    options = parse("sminfo", arguments, "D", positional=("destination",))
    if options.destination:
        target = parse_target(options.destination, options.D)
    else:
        target = Target(PortInfo.master_sm_lid.get(get_smp(carrier, HERE, SmpAttribute.PORT_INFO)))
        if not target.lid:
            raise ConfigError("no subnet manager has configured this port: run one first")
    info = SMInfo.unpack(get_smp(carrier, target, SmpAttribute.SM_INFO))
    state = _STATES[info.sm_state] if info.sm_state < len(_STATES) else "???"
    return (
        f"sminfo: sm lid {target.lid or 0} sm guid 0x{info.guid:x}, activity count {info.act_count} "
        f"priority {info.priority} state {info.sm_state} {state}\n"
    )
