"""The engines by name, for `--engine` and the conformance tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import find_named
from weft.sim.analytic import AnalyticEngine
from weft.sim.auto import AutoEngine
from weft.sim.flow.engine import FlowEngine
from weft.sim.packet.engine import PacketEngine

if TYPE_CHECKING:
    from weft.sim.result import Engine

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (PacketEngine(), FlowEngine(), AnalyticEngine())}


def find_engine(name: str, *, auto: bool = False) -> Engine:
    """Return an engine by name; `auto` chooses by the traffic, where the caller can take either engine."""
    return find_named("engine", name, ENGINES | {AutoEngine.name: AutoEngine()} if auto else ENGINES)
