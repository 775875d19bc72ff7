"""None beyond what the transport does of its own accord: TCP's is Reno."""

from __future__ import annotations

from weft.sim.congestion import Control
from weft.sim.engine import Network

NONE = Control(name="none", networks=tuple(one for one in Network if one is not Network.TCP))
