"""Faults of links during a run, as text: a cable that is cut, or runs at a lower rate, from one time to another.

cut:leaf1/33@20us-80us
slow:leaf1/33=1xNDR@20us-80us
cut:leaf1/33@1.5ms-                until the end of the run
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from weft.errors import ConfigError

NO_END_PS = 1 << 52
_UNITS_PS = {"ns": 10**3, "us": 10**6, "µs": 10**6, "ms": 10**9, "s": 10**12}
_TIME = r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s)"
_FORM = re.compile(rf"(?P<kind>cut|slow):(?P<port>[^=@]+)(?:=(?P<label>[^@]+))?@{_TIME}-(?:{_TIME})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault:
    """A fault of the cable in a port, from `begin_ps` to `end_ps`."""

    text: str
    port: str
    label: str  # rate that remains, `1xNDR`; empty: the cable is cut
    begin_ps: int
    end_ps: int


def parse_link_fault(text: str) -> LinkFault:
    """Parse a fault with times."""
    parts = _FORM.fullmatch(text)
    if parts is None or (parts["kind"] == "slow") != bool(parts["label"]):
        raise ConfigError(
            f"--fault {text} is not a fault of a link with its times: write cut:leaf1/33@20us-80us or "
            f"slow:leaf1/33=1xNDR@20us-80us"
        )
    begin, begin_unit, end, end_unit = parts.groups()[3:]
    begin_ps = round(float(begin) * _UNITS_PS[begin_unit])
    end_ps = round(float(end) * _UNITS_PS[end_unit]) if end else NO_END_PS
    if not begin_ps < end_ps <= NO_END_PS:
        raise ConfigError(f"--fault {text} ends before it begins, or after an hour: give times in order")
    return LinkFault(text=text, port=parts["port"], label=parts["label"] or "", begin_ps=begin_ps, end_ps=end_ps)
