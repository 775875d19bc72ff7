"""Captures of the packets on a cable of a lab, as pcapng files for Wireshark."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from weft.lab import control
from weft.serve.api.exchange import ask_fabric, caller_of, change, gives
from weft.serve.console.routes import monitor_of, not_tenants, operators_only

_MEDIA = "application/vnd.tcpdump.pcap"
_MOST_S = 30.0  # less than the timeout of a request

router = APIRouter(tags=["captures"], dependencies=[Depends(not_tenants), Depends(operators_only)])


class CaptureIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A request to capture the packets on the cable of a port, both ways."""

    port: str
    seconds: Annotated[float, msgspec.Meta(gt=0, le=_MOST_S)] = 5
    packets: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 10_000  # at most


@router.post("/captures", **gives(None, 400, 403, 409, 422, 504, takes=CaptureIn))
async def capture(request: Request) -> Response:
    """Return a pcapng file of MADs and packets of programs; an interface is named after the port that sends.

    Operators only: MADs carry the M_Key.
    """
    order, monitor = msgspec.json.decode(await request.body(), type=CaptureIn), monitor_of(request)
    lab = monitor.lab()
    await change(request, lambda _: None)  # adds the request to the audit log
    monitor.log("capture", f"{caller_of(request).name}: {order.port}, {order.seconds:g} s")

    def record() -> bytes:
        with tempfile.TemporaryDirectory(prefix="weft-capture-") as folder:
            path = Path(folder) / "link.pcapng"
            control.ask(
                lab, "capture", None, port=order.port, path=str(path), seconds=order.seconds, packets=order.packets
            )
            return path.read_bytes()

    body = await ask_fabric(request, record)
    name = f"{order.port.replace('/', '-')}.pcapng".encode("ascii", "replace").decode().replace('"', "_")
    return Response(body, media_type=_MEDIA, headers={"Content-Disposition": f'attachment; filename="{name}"'})
