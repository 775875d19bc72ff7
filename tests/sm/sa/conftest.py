"""A subnet administrator and a view of its subnet after a sweep."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.ids import Gid
from weft.mad.carrier import Address
from weft.mad.subnet import Subnet
from weft.mad.walk import walk
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sm.conf.options import Options
from weft.sm.discovery.view import make_view
from weft.sm.events import Log
from weft.sm.sa.administrator import Administrator
from weft.sm.state import State
from weft.wire.bulk import fill
from weft.wire.mad import Method
from weft.wire.port_info import Mtu, PortInfo, PortState
from weft.wire.sa import SA_HEADER_BYTES, SaMad
from weft.wire.sa_query import component_mask, unpack_records


class _Carrier:
    """A carrier with the functions that a walk needs."""

    def __init__(self, subnet: Subnet, slot: int) -> None:
        self.subnet, self.slot = subnet, slot

    def exchange(self, mads, to=None, *, timeout_ms=0, retries=0):
        answers = [self.subnet.send(self.slot, bytes(mad)) for mad in mads]
        rows = [np.frombuffer(answer or bytes(256), np.uint8) for answer in answers]
        return np.array(rows).reshape(-1, 256), np.array([answer is not None for answer in answers], bool)


class Asked:
    """A subnet administrator; `view` is the result of a sweep: LIDs, tables, Active ports."""

    def __init__(self, spec: str, *, engine: str = "auto", lmc: int = 0, options: Options | None = None) -> None:
        fabric = weft.load(spec)
        slot = int(fabric.first_port[fabric.hcas[0].index]) + 1
        view = make_view(walk(_Carrier(Subnet(fabric), slot)))
        routed = route(view.fabric, RoutingOptions(engine=engine, lmc=lmc)).fabric
        infos = view.port_info.copy()
        for field, value in ((PortInfo.port_state, PortState.ACTIVE), (PortInfo.neighbor_mtu, Mtu.BYTES_4096)):
            plugged = infos[view.plugged]
            fill(plugged, field, int(value))
            infos[view.plugged] = plugged
        self.state = State(options=options or Options(), sender=SimpleNamespace(mads=77, m_key=0), log=Log())
        self.state.view = self.view = replace(view, fabric=routed, port_info=infos)
        self.administrator = Administrator(self.state)
        self.administrator.is_master = True

    def slot(self, name: str) -> int:
        """Return the slot of the port of a host (`h3`) or of a switch (`leaf1`)."""
        node = self.view.fabric.find_node(name)
        return int(self.view.fabric.first_port[node.index]) + (0 if self.view.is_switch[node.index] else 1)

    def lid(self, name: str) -> int:
        return int(self.view.fabric.tables.lid[self.slot(name)])

    def gid(self, name: str) -> int:
        return Gid.LINK_LOCAL_PREFIX << 64 | int(self.view.fabric.ports.guid[self.slot(name)])

    def resweep(self, **changes) -> None:
        """Change the view, as a sweep that found differences does."""
        self.state.view = self.view = replace(self.view, **changes)

    def send(self, attribute, record=b"", method=Method.GET_TABLE, *, mask=0, by="h1", **header) -> bytes | None:
        mad = SaMad(method=method, attribute_id=attribute, component_mask=mask, data=bytes(record), **header)
        return self.administrator.answer(mad.raw, Address(lid=self.lid(by) if isinstance(by, str) else by))

    def ask(self, attribute, form, method=Method.GET_TABLE, *, by="h1", header=None, answered_in=None, **components):
        """Return the status and the records of the answer."""
        names = [name for name in components if name.isidentifier()]
        mask = component_mask(form, *names)
        answer = self.send(attribute, form(**components), method, mask=mask, by=by, **(header or {}))
        assert answer is not None
        status = SaMad.status.get(answer)
        if status:
            return status, []
        offset, data = SaMad.attribute_offset.get(answer), answer[SA_HEADER_BYTES:]
        records = unpack_records(answered_in or form, data, offset) if offset else []
        return 0, records[:1] if method == Method.GET else records


@pytest.fixture(scope="session")
def tree() -> Asked:
    """Return a tree that tests do not change."""
    return Asked("fat-tree:hosts=16,radix=8")


@pytest.fixture
def make_subnet():
    return Asked
