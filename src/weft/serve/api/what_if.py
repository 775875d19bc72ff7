"""What if: the effects of a change of the fabric on a model of it. Nothing is changed."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from weft.monitor.impact import read_jobs, read_routed
from weft.serve.api.exchange import ask_fabric, encoded, gives
from weft.serve.console.monitor import FabricMonitor
from weft.serve.console.routes import monitor_of, not_tenants
from weft.tenants.intent import parse_intent
from weft.twin.what_if import Answer, Change, ask

_MOST_NAMES = 100  # of hosts and alarms

router = APIRouter(tags=["what if"], dependencies=[Depends(not_tenants)])


class WhatIfIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A change, in one or several respects."""

    faults: list[str] = []  # cut:leaf1/5, dead:spine1, slow:leaf1/5=1xNDR
    routing_engine: str = ""
    add_servers: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    tenants: dict[str, Any] | None = None  # the intent that replaces the partitions, as PUT /intent takes it
    jobs: list[str] | None = None  # train=all-to-all:h[1-64]@80%; None: those of the lab


class JobEffect(msgspec.Struct, kw_only=True):
    """The payload of a job in Gbit/s."""

    name: str
    before_gbit_s: float
    meanwhile_gbit_s: float  # until the tables are changed
    after_gbit_s: float
    loss: float  # share of the rate before


class PortEffect(msgspec.Struct, kw_only=True):
    """The share of time that a port sends."""

    port: str
    before: float | None  # None: it had no link
    after: float


class WhatIfOut(msgspec.Struct, kw_only=True):
    """The effects of a change; the fabric is as before."""

    safe: bool  # all hosts stay connected, and nothing can deadlock
    refusal: str  # why the rest cannot be routed; "": it can
    hosts: int
    cut_off_hosts: int
    cut_off: list[str]  # the first
    new_hosts: int
    engine: str
    entries: int
    changed_entries: int
    changed_switches: int
    can_deadlock: bool
    proof: str
    alarms: list[str]  # that the monitor would show
    jobs: list[JobEffect]
    busiest: list[PortEffect]
    lost_pairs: int  # host ports that no longer share a partition
    gained_pairs: int


@router.post("/whatif", **gives(WhatIfOut, 400, 403, 422, 504, takes=WhatIfIn))
async def ask_what_if(request: Request) -> Response:
    """Return the effects of a change on a model of the present fabric, with the tables and jobs of now."""
    order, monitor = msgspec.json.decode(await request.body(), type=WhatIfIn), monitor_of(request)
    change = Change(
        faults=tuple(order.faults),
        routing_engine=order.routing_engine,
        new_servers=order.add_servers,
        tenants=None if order.tenants is None else parse_intent(order.tenants),
    )
    answer = await ask_fabric(request, lambda: _ask(monitor, change, order.jobs))
    return Response(encoded(what_if_out(answer)), media_type="application/json")


def _ask(monitor: FabricMonitor, change: Change, jobs: list[str] | None) -> Answer:
    with monitor.ask() as carrier:
        fabric = read_routed(carrier)
    return ask(fabric, change, read_jobs(fabric, monitor.load().get("jobs", [])) if jobs is None else jobs)


def what_if_out(answer: Answer) -> WhatIfOut:
    proof, partitions = answer.proof, answer.partitions
    return WhatIfOut(
        safe=answer.is_safe,
        refusal=answer.refusal,
        hosts=answer.hosts,
        cut_off_hosts=len(answer.cut_off),
        cut_off=list(answer.cut_off[:_MOST_NAMES]),
        new_hosts=answer.new_hosts,
        engine=answer.engine,
        entries=answer.entries,
        changed_entries=answer.changed_entries,
        changed_switches=answer.changed_switches,
        can_deadlock=proof is not None and bool(proof.credit_loop),
        proof="" if proof is None else proof.explain(),
        alarms=list(answer.alarms[:_MOST_NAMES]),
        jobs=[
            JobEffect(
                name=job.name,
                before_gbit_s=job.before_gbit_s,
                meanwhile_gbit_s=job.meanwhile_gbit_s,
                after_gbit_s=job.after_gbit_s,
                loss=job.loss,
            )
            for job in answer.jobs
        ],
        busiest=[PortEffect(port=link.port, before=link.before, after=link.after) for link in answer.busiest],
        lost_pairs=0 if partitions is None else partitions.lost_pairs,
        gained_pairs=0 if partitions is None else partitions.gained_pairs,
    )
