"""Queries of the tools: by LID, along a path, or by LID to the start of a path."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from weft.errors import ConfigError, SubnetError
from weft.mad.carrier import Address, Carrier, ask
from weft.mad.discover import directed_get
from weft.wire.mad import MadHeader, Method, MgmtClass, PlainMad
from weft.wire.perf import PortSelect
from weft.wire.port_info import PortInfo
from weft.wire.smp import PERMISSIVE_LID, DirectedSmp, Smp, SmpAttribute

_SMP_DATA, _GMP_DATA = 64, 64
TIMEOUT_MS, RETRIES = 1000, 2  # of infiniband-diags


class Arguments(argparse.ArgumentParser):
    """A parser of a tool's arguments; mistakes raise ConfigError."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}. {self.format_usage().strip()}")


@dataclass(frozen=True, slots=True)
class Target:
    """A port by LID, a node by a path of ports from here (`lid` None), or by a path that begins at a LID."""

    lid: int | None
    path: bytes = b""

    def __str__(self) -> str:
        """Format as infiniband-diags does."""
        if self.lid is None:
            route = ",".join(map(str, (0, *self.path)))
            return f"DR path slid {PERMISSIVE_LID}; dlid {PERMISSIVE_LID}; {route}"
        return f"Lid {self.lid}"

    def through(self, port: int) -> Target:
        """Return the target behind a port of this node."""
        return Target(self.lid, self.path + bytes([port]))


HERE = Target(None)


def parse_target(text: str, directed: bool) -> Target:
    """Parse a LID, `7` or `0x7`; or a path, `0,1,3`, which starts at our own node, 0."""
    try:
        if not directed:
            lid = int(text, 0)
            if not 0 < lid < 0xC000:
                raise ConfigError(f"{text} is not a unicast LID: give 1 to {0xBFFF}")
            return Target(lid)
        hops = bytes(int(hop) for hop in text.split(","))
    except ValueError:
        rule = "write a path as 0,1,3: the own node and the port of each hop" if directed else "give a LID, a number"
        raise ConfigError(f"{text!r} is not a destination: {rule}") from None
    return Target(None, hops[1:])


def get_smp(carrier: Carrier, target: Target, attribute: int, modifier: int = 0) -> bytes:
    """Return the 64 bytes of an attribute; raise SubnetError if there is no answer or an error status."""
    address = Address() if target.lid is None else Address(lid=target.lid)
    if target.lid is None or target.path:
        smp = directed_get(target.path, attribute, modifier)
        if target.lid is not None:  # by LID first: the answer returns to our LID
            smp = DirectedSmp.unpack(smp).replace(dr_slid=own_lid(carrier)).raw
    else:
        smp = Smp.pack(method=Method.GET, attribute_id=attribute, attribute_modifier=modifier)
    answer = ask(carrier, smp, address, timeout_ms=TIMEOUT_MS, retries=RETRIES)
    query = f"{SmpAttribute(attribute).name} of {target}"
    if answer is None:
        raise SubnetError(f"no answer: {query}")
    status = MadHeader.status.get(answer) & 0x7FFF
    if status:
        raise SubnetError(f"{query}: status 0x{status:x}")
    return answer[_SMP_DATA : _SMP_DATA + 64]


def own_lid(carrier: Carrier) -> int:
    return int(PortInfo.lid.get(get_smp(carrier, HERE, SmpAttribute.PORT_INFO)))


def get_counters(carrier: Carrier, lid: int, attribute: int, port: int) -> bytes:
    """Return the data of an attribute of performance management."""
    data = PortSelect.pack(port_select=port)
    mad = PlainMad.pack(mgmt_class=MgmtClass.PERF, method=Method.GET, attribute_id=attribute, data=data)
    answer = ask(carrier, mad, Address(lid=lid), timeout_ms=TIMEOUT_MS, retries=RETRIES)
    if answer is None:
        raise SubnetError(f"no answer: counters of Lid {lid} port {port}. LIDs need a subnet manager")
    if MadHeader.status.get(answer):
        raise SubnetError(f"Lid {lid} port {port}: status 0x{MadHeader.status.get(answer):x}; does the port exist?")
    return answer[_GMP_DATA:]


def parse(name: str, arguments: Sequence[str], *flags: str, positional: Sequence[str] = ()) -> argparse.Namespace:
    """Parse flags, given as letters (`D` for -D), and optional positional arguments."""
    parser = Arguments(prog=name, add_help=False)
    for flag in flags:
        parser.add_argument(f"-{flag}", dest=flag, action="store_true")
    for word in positional:
        parser.add_argument(word, nargs="?", default="")
    return parser.parse_args(list(arguments))
