"""Requests to the subnet administrator that a host's port knows, repeated while it is busy."""

from __future__ import annotations

import time

from weft.errors import SubnetError
from weft.mad.carrier import Address, Carrier, ask
from weft.mad.discover import directed_get
from weft.wire.mad import Status
from weft.wire.port_info import PortInfo
from weft.wire.sa import SaMad
from weft.wire.smp import DirectedSmp, SmpAttribute

_TIMEOUT_MS, _RETRIES = 2000, 3
_WAIT_S = 0.05
_BUSY_S = 120.0  # a manager that sweeps on a starved machine


class NoAnswer(SubnetError):
    """The subnet administrator did not answer."""


def administrator(carrier: Carrier) -> Address:
    """Return the address of the subnet administrator; LID 0 if no manager has configured our port."""
    answer = ask(carrier, directed_get(b"", SmpAttribute.PORT_INFO), timeout_ms=_TIMEOUT_MS, retries=_RETRIES)
    if answer is None:
        raise SubnetError("our own port does not answer: is it up?")
    return Address(PortInfo.unpack(DirectedSmp.unpack(answer).data).master_sm_lid)


def ask_administrator(carrier: Carrier, request: bytes) -> bytes:
    """Send a request to the subnet administrator and return its answer, which may be a refusal.

    A manager that is not master also answers BUSY, so the address is read from our port again at each try.
    """
    until_s = time.monotonic() + _BUSY_S
    while True:
        sm = administrator(carrier)
        answer = ask(carrier, request, sm, timeout_ms=_TIMEOUT_MS, retries=_RETRIES)
        if answer is None:
            raise NoAnswer(f"no answer from the subnet administrator at LID {sm.lid}: is it running, and within reach?")
        if SaMad.status.get(answer) != Status.BUSY or time.monotonic() > until_s:
            return answer
        time.sleep(_WAIT_S)
