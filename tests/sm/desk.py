"""The state of a subnet manager after a sweep, and its subnet administrator, without a running manager."""

from __future__ import annotations

import io

from tests.sm.conftest import Net

from weft.fabric.model import Fabric
from weft.ids import Gid
from weft.mad.carrier import Address
from weft.mad.walk import walk
from weft.sm.conf.options import Options
from weft.sm.discovery.known import carried_over
from weft.sm.discovery.view import View, make_view
from weft.sm.events import Log
from weft.sm.mcast.trees import plant_trees, reprogram, upload_multicast
from weft.sm.sa.administrator import Administrator
from weft.sm.sender import Sender
from weft.sm.state import State
from weft.sm.sweep import settle_groups
from weft.sm.ucast.lids import choose_lids
from weft.wire.format import Format
from weft.wire.mad import Method
from weft.wire.sa import SA_HEADER_BYTES, SaAttribute, SaMad
from weft.wire.sa_query import component_mask, unpack_records

SA_KEY = 1


class Desk:
    """A subnet administrator and its state. Ports are named as in the fabric: `h1` is port 1 of h1."""

    def __init__(self, spec: str | Fabric = "fat-tree:hosts=8,radix=4") -> None:
        self.net = Net(spec)
        self.state = State(options=Options(), log=Log(io.StringIO()), sender=Sender(self.net), clock=self.net.clock)
        self.administrator = Administrator(self.state)
        self.administrator.is_master = True
        self.sweep()

    def sweep(self) -> list[str]:
        """Run the parts of a sweep that groups need."""
        view = make_view(walk(self.state.sender))
        lids = choose_lids(view, self.state.remembered)
        view.fabric.tables.lid[:] = lids.lid
        view.fabric.tables.set_lmc(slice(None), lids.lmc)
        recorded = carried_over(self.state.known, view)
        settle_groups(self.state, view)
        plant_trees(view, self.state.groups)
        refused = upload_multicast(self.state.sender, view, recorded)
        self.state.view, self.state.known = view, recorded
        return refused

    def reprogram(self) -> list[str]:
        assert self.state.known is not None
        return reprogram(self.state.sender, self.view, self.state.known, self.state.groups)

    @property
    def view(self) -> View:
        assert self.state.view is not None
        return self.state.view

    def slot(self, name: str) -> int:
        node = self.view.fabric.node_index[name]
        return int(self.view.fabric.first_port[node]) + (not self.view.is_switch[node])

    def guid(self, name: str) -> int:
        return int(self.view.fabric.ports.guid[self.slot(name)])

    def gid(self, name: str) -> int:
        return int(Gid.of(self.guid(name)))

    def lid(self, name: str) -> int:
        return int(self.view.fabric.tables.lid[self.slot(name)])

    def put_into_partition(self, name: str, *p_keys: int) -> None:
        keys = self.view.fabric.tables.pkey[self.slot(name)]
        keys[:] = 0
        keys[: len(p_keys)] = p_keys

    def ask(
        self, who: str, method: Method, attribute: SaAttribute, record: Format, names: str = "", *, sm_key: int = 0
    ) -> tuple[int, list[Format]]:
        """Return the status and the records of the answer."""
        form = type(record)
        mad = SaMad.pack(
            method=method,
            attribute_id=attribute,
            sm_key=sm_key,
            component_mask=component_mask(form, *names.split()),
            data=record.raw.ljust(200, b"\0"),
        )
        answer = self.administrator.answer(mad, Address(self.lid(who)))
        assert answer is not None
        offset, status = SaMad.attribute_offset.get(answer), SaMad.status.get(answer)
        if status or not offset:
            return status, []
        if method == Method.GET_TABLE:
            return status, unpack_records(form, answer[SA_HEADER_BYTES:], offset)
        return status, [form.unpack(answer, SA_HEADER_BYTES)]
