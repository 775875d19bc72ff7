"""sminfo: what a subnet manager says of itself."""

from __future__ import annotations

from collections.abc import Sequence

from weft.diags.ask import HERE, Target, get_smp, parse, parse_target
from weft.errors import ConfigError
from weft.mad.carrier import Carrier
from weft.wire.port_info import PortInfo
from weft.wire.smp import SMInfo, SmpAttribute

_STATES = ("SMINFO_NOTACT", "SMINFO_DISCOVER", "SMINFO_STANDBY", "SMINFO_MASTER")


def sminfo(carrier: Carrier, arguments: Sequence[str]) -> str:
    """sminfo [-D] [LID|PATH]; without, the manager of this port."""
    given = parse("sminfo", arguments, "D", positional=("destination",))
    if given.destination:
        target = parse_target(given.destination, given.D)
    else:
        target = Target(PortInfo.master_sm_lid.get(get_smp(carrier, HERE, SmpAttribute.PORT_INFO)))
        if not target.lid:
            raise ConfigError("this port knows no subnet manager: none has been here since it came up")
    said = SMInfo.unpack(get_smp(carrier, target, SmpAttribute.SM_INFO))
    state = _STATES[said.sm_state] if said.sm_state < len(_STATES) else "???"
    return (
        f"sminfo: sm lid {target.lid or 0} sm guid 0x{said.guid:x}, activity count {said.act_count} "
        f"priority {said.priority} state {said.sm_state} {state}\n"
    )
