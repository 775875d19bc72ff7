"""Queue pair 1 of an adapter, where requests for connections arrive."""

from __future__ import annotations

import atexit
import contextlib
import errno
import secrets
from collections import deque
from collections.abc import Callable

from weft.verbs.attributes.address import read_route
from weft.verbs.cm.connection import Conversation, Phase, Side, Told
from weft.verbs.cm.services import Claim, Kind, is_claimed
from weft.verbs.enums import ibv_qp_state
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.hca.datagram import Datagrams
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.hca.receiving import ReceiveQueue
from weft.verbs.hca.segment import PSN_MASK, Op, Segment, Service
from weft.wire import cm
from weft.wire.format import Format

QP1, QP1_KEY = 1, 0x8001_0000
_PORT_SPACE_SHIFT = 16
_REMEMBERED = 1024
_LOOK_S = 1.0  # how often it is looked whether processes at other ends are there
_NUMBERS = {form: number for number, form in cm.ATTRIBUTES.items()}
_PORT = slice(2, 4)  # of a request's private data: the one of who asks


def service_id(port_space: int, port: int) -> int:
    """The number of a service of the connection manager (annex A11, "RDMA IP CM Service")."""
    return port_space << _PORT_SPACE_SHIFT | port


class Agent(Datagrams):
    """Queue pair 1 of an adapter: all conversations, and who listens for new ones.

    For its adapter it is also what keeps time: what a connection's `requester` is for a queue pair.
    """

    def __init__(self, qp: QueuePair) -> None:
        super().__init__(qp)
        self.listeners: dict[int, Callable[[Conversation, bytes], None]] = {}
        self.conversations: dict[int, Conversation] = {}
        self._asked: dict[tuple[tuple[int, int], int], Conversation] = {}  # by who asked, and the number of it there
        self._gone: deque[int] = deque(maxlen=_REMEMBERED)  # conversations that ended
        self._begin, self._claim = _claimed()
        self._look_s = 0.0

    def converse(self, to: tuple[int, int], tell: Callable[[Told], None], *, is_datagram: bool) -> Conversation:
        number = self._begin | secrets.randbits(16)  # nobody else who hears what is said to queue pair 1 has it too
        while number in self.conversations or number in self._gone:
            number = self._begin | secrets.randbits(16)
        made = Conversation(agent=self, to=to, local_id=number, tell=tell, is_datagram=is_datagram)
        self.conversations[number] = made
        return made

    def now_s(self) -> float:
        return self.qp.adapter.clock()

    def forget(self, ended: Conversation) -> None:
        if self.conversations.pop(ended.local_id, None) is not None:
            self._gone.append(ended.local_id)
        self._asked.pop((ended.to, ended.remote_id), None)

    def say(self, message: Format, *, to: tuple[int, int]) -> None:
        mad = cm.CmMad(attribute_id=_NUMBERS[type(message)], data=message.raw)
        segment = Segment(
            op=Op.SEND,
            service=Service.UD,
            dest_qp=QP1,
            psn=self.qp.record.next_psn,
            source_qp=QP1,
            q_key=QP1_KEY,
            payload=mad.raw,
        )
        self.qp.record.next_psn = self.qp.record.next_psn + 1 & PSN_MASK
        self.qp.adapter.send(self.qp, segment, to)
        self.qp.adapter.note_time(self.qp)

    def end(self) -> None:
        """The process ends: others are told, as by a kernel that closes what a process has left open."""
        with contextlib.suppress(OSError), self.qp.adapter.lock:
            for one in list(self.conversations.values()):
                one.close()

    # -- as a queue pair ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """It sends at once."""

    def next_s(self) -> float | None:
        due_s = [one.due_s for one in self.conversations.values() if one.due_s is not None]
        if any(one.is_connected for one in self.conversations.values()):
            due_s.append(self._look_s)
        return min(due_s, default=None)

    def on_time(self, now_s: float) -> None:
        for one in list(self.conversations.values()):
            if one.due_s is not None and one.due_s <= now_s:
                one.on_time(now_s)
        if now_s >= self._look_s:
            self._look_s = now_s + _LOOK_S
            self._look()

    def _look(self) -> None:
        """Of a process that was killed nobody says that it left, as a kernel would. Other machines are not seen."""
        talking = [one for one in self.conversations.values() if one.is_connected]
        there = {number: is_claimed(number, 0, Kind.PROCESS) for number in {one.remote_id >> 16 for one in talking}}
        for one in talking:
            if one.was_seen and not there[one.remote_id >> 16]:
                one.on_gone()

    def on_request(self, segment: Segment, grh: bytes, slid: int, sl: int) -> None:
        if segment.q_key != QP1_KEY or len(segment.payload) != cm.CmMad.size:
            self.qp.adapter.counters["qkey_violations"] += segment.q_key != QP1_KEY
            return
        mad = cm.CmMad.unpack(bytes(segment.payload))
        form = cm.ATTRIBUTES.get(mad.attribute_id)
        if mad.mgmt_class != cm.CmMad().mgmt_class or form is None:
            return
        route, own = read_route(grh)
        source = int.from_bytes(route.raw_dgid, "big"), int.from_bytes(own, "big")
        self._on_message(form.unpack(mad.data), source)

    # -- messages -----------------------------------------------------------------------------------------------------

    def _on_message(self, message: Format, source: tuple[int, int]) -> None:
        if isinstance(message, cm.Req | cm.SidrReq):
            self._on_new(message, source)
            return
        number = message.request_id if isinstance(message, cm.SidrRep) else getattr(message, "remote_comm_id", -1)
        found = self.conversations.get(number)
        if isinstance(message, cm.Rej) and not message.remote_comm_id:  # who asked gave up before we answered
            found = self._asked.get((source, message.local_comm_id))
        if found is None:
            if isinstance(message, cm.Dreq) and number in self._gone:  # our answer was lost
                gone = cm.Drep(local_comm_id=message.remote_comm_id, remote_comm_id=message.local_comm_id)
                self.say(gone, to=source)
            return
        if (act := _ACTS.get(type(message))) is not None:
            act(found, message)
        if isinstance(message, cm.Rep | cm.Rtu):
            found.was_seen = is_claimed(found.remote_id >> 16, 0, Kind.PROCESS)
        self.qp.adapter.note_time(self.qp)

    def _on_new(self, message: cm.Req | cm.SidrReq, source: tuple[int, int]) -> None:
        is_datagram = isinstance(message, cm.SidrReq)
        number = message.request_id if isinstance(message, cm.SidrReq) else message.local_comm_id
        known = self._asked.get((source, number))
        if known is not None:
            known.on_req()
            return
        listener = self.listeners.get(message.service_id)
        if listener is None and is_claimed(source[1], message.service_id):
            return  # another process with the same address will answer
        made = self.converse(source, _nobody, is_datagram=is_datagram)
        made.remote_id, made.service, made.phase = number, message.service_id, Phase.REQUESTED
        self._asked[source, number] = made
        if isinstance(message, cm.Req):
            made.far = Side.of(message)
        made.far.port = int.from_bytes(message.private_data[_PORT], "big")
        if listener is not None:
            listener(made, message.private_data)
        else:
            made.reject(reason=cm.RejReason.INVALID_SERVICE_ID)


def _claimed() -> tuple[int, Claim]:
    """The upper half of this process's numbers of conversations: whether it lives can be asked by that."""
    while True:
        half = secrets.randbits(16)
        try:
            return half << 16, Claim(half, 0, Kind.PROCESS)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


def _nobody(told: Told) -> None:
    """Of a request that has no owner yet."""


_ACTS: dict[type[Format], Callable[..., None]] = {
    cm.Mra: Conversation.on_mra,
    cm.Rep: Conversation.on_rep,
    cm.Rtu: Conversation.on_rtu,
    cm.Rej: Conversation.on_rej,
    cm.Dreq: Conversation.on_dreq,
    cm.Drep: Conversation.on_drep,
    cm.SidrRep: Conversation.on_sidr_rep,
}


def agent_of(adapter: Adapter) -> Agent:
    """The one at its queue pair 1, which is made when somebody asks first."""
    if QP1 not in adapter.queue_pairs:
        unused = CompletionQueue(1)
        qp = QueuePair(
            adapter=adapter,
            number=QP1,
            service=Service.UD,
            pd=adapter,
            send_cq=unused,
            recv_cq=unused,
            receives=ReceiveQueue(0, 0),
            send_capacity=0,
            send_places_max=0,
            inline_max=0,
            signal_all=False,
        )
        qp.state, qp.settings.q_key = ibv_qp_state.IBV_QPS_RTS, QP1_KEY
        made = Agent(qp)
        qp.datagrams = qp.requester = made  # type: ignore[assignment]
        atexit.register(made.end)
        adapter.queue_pairs[QP1] = qp
    agent = adapter.queue_pairs[QP1].datagrams
    assert isinstance(agent, Agent)
    return agent
