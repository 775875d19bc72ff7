"""A small UFM in memory for tests of the driver; it can fail or die at a chosen call."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

_QOS = {"mtu_limit": 2, "rate_limit": 2.5, "service_level": 0}


class SmallUfm(ThreadingHTTPServer):
    def __init__(self, hosts: dict[str, int], membership: str | None = "limited") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hosts, self.membership = hosts, membership
        self.pkeys: dict[str, dict[str, Any]] = {"0x200": {"partition": "own", "ip_over_ib": True, **_new()}}
        self.changes = 0  # calls that change something
        self.fail_at: set[int] = set()  # numbers of the changes to refuse
        self.keeps_names = True
        self.kill: tuple[int, int] | None = None  # at which of those which process is killed, before it is carried out

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def held(self, guid: int) -> list[int]:
        """Return the P_Key table that a port would have."""
        default = 0x7FFF if self.membership == "limited" else 0xFFFF
        table = [default]
        for key, item in self.pkeys.items():
            member = item["members"].get(f"{guid:016x}")
            if member is not None:
                value = int(key, 16) | 0x8000 * (member["membership"] == "full")
                table.insert(0 if member["index0"] else len(table), value)
        return table

    # -- calls --------------------------------------------------------------------------------------------------------

    def do(self, method: str, path: str, query: str, body: dict[str, Any]) -> tuple[int, Any]:
        path = path.removeprefix("/ufmRestV3/resources/")
        if method == "GET":
            return 200, self._ports() if path == "ports" else self._described(query)
        self.changes += 1
        if self.kill is not None and self.kill[0] == self.changes:
            os.kill(self.kill[1], signal.SIGKILL)
            return 503, {}
        if self.changes in self.fail_at:
            return 503, {"error": "no luck today"}
        return 200, self._changed(method, path, body)

    def _changed(self, method: str, path: str, body: dict[str, Any]) -> Any:
        if method == "DELETE":
            key, *guids = re.fullmatch(r"pkeys/(0x[0-9a-f]+)(?:/guids/(.*))?", path).groups()
            if guids == [None]:
                self.pkeys.pop(key, None)
            for guid in (guids[0] or "").split(","):
                self.pkeys.get(key, _new())["members"].pop(guid, None)
            return {}
        item = self.pkeys.setdefault(body["pkey"], {"partition": f"api_pkey_{body['pkey']}", **_new()})
        item["ip_over_ib"] = body.get("ip_over_ib", item.get("ip_over_ib", True))
        item["qos_conf"] |= {name: body[name] for name in _QOS if name in body}
        if path == "pkeys/add" and self.keeps_names:
            item["partition"] = body["partition_name"]
        for guid, membership in zip(body.get("guids", ()), body.get("memberships", ()), strict=True):
            item["members"][guid] = {"guid": guid, "membership": membership, "index0": body["index0"]}
        return {}

    def _described(self, query: str) -> dict[str, Any]:
        result: dict[str, Any] = {"0x7fff": {"partition": "management", "ip_over_ib": True}}
        if self.membership:
            result["0x7fff"]["membership"] = self.membership
        for key, item in self.pkeys.items():
            result[key] = {"partition": item["partition"], "ip_over_ib": item["ip_over_ib"]}
            result[key] |= (
                {"qos_conf": item["qos_conf"]} if "qos" in query else {"guids": list(item["members"].values())}
            )
        return result

    def _ports(self) -> list[dict[str, Any]]:
        return [
            {
                "guid": f"{guid:016x}",
                "name": f"{guid - 1:016x}_1",
                "number": 1,
                "lid": lid,
                "logical_state": "Active",
                "system_name": host.partition("/")[0],
                "node_description": host.replace("/", " "),
                "description": "Computer IB Port",
            }
            for lid, (host, guid) in enumerate(self.hosts.items(), 1)
        ]


def _new() -> dict[str, Any]:
    return {"members": {}, "qos_conf": dict(_QOS)}


class _Handler(BaseHTTPRequestHandler):
    server: SmallUfm

    def log_message(self, *words: object) -> None:
        pass

    def any_verb(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        where = urlsplit(self.path)
        status, answer = self.server.do(self.command, where.path, where.query, json.loads(data) if data else {})
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


for verb in ("GET", "POST", "PUT", "DELETE"):
    setattr(_Handler, f"do_{verb}", _Handler.any_verb)


@contextmanager
def running(ufm: SmallUfm) -> Iterator[SmallUfm]:
    with ufm:
        thread = Thread(target=ufm.serve_forever, args=(0.01,))
        thread.start()
        yield ufm
        ufm.shutdown()
        thread.join()
