"""A fake UFM that stores partitions without a fabric, for tests of the calls of its clients."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from weft.fabric.files.hostlist import expand


class UfmServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.partitions: dict[int, dict[str, Any]] = {}
        self.hosts: dict[str, list[str]] = {}  # GUIDs by name
        self.status = 200  # HTTP status of every answer; 503: unavailable
        self.calls: list[str] = []  # method and path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def members(self, p_key: int) -> set[int] | None:
        """Return the members of a partition, or None."""
        result = self.partitions.get(p_key)
        return None if result is None else {int(guid, 16) for guid in result["guids"]}

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if self.status != 200:
            return self.status, {"error": "away"}
        match [method, *path.split("/")]:
            case ["GET", "resources", "pkeys"]:
                return 200, {f"{p_key:#x}": self._shown(p_key) for p_key in self.partitions}
            case ["GET", "resources", "pkeys", p_key]:
                return 200, self._shown(int(p_key, 16)) if int(p_key, 16) in self.partitions else {}
            case ["GET", "resources", "ports"]:
                return 200, [{"guid": guid, "system_name": host} for host in self.hosts for guid in self.hosts[host]]
            case ["POST", "resources", "pkeys", "add"]:
                if int(body["pkey"], 16) in self.partitions:
                    return 409, {"error": f"{body['pkey']} is there"}
                self._partition(body)["partition"] = body["partition_name"]
            case ["POST", "resources", "pkeys"]:
                self._partition(body)["guids"] |= dict.fromkeys(body["guids"], body["index0"])
            case ["POST", "resources", "pkeys", "hosts"]:
                names = expand(body["hosts_names"])
                if unknown := set(names) - self.hosts.keys():
                    return 404, {"error": f"no such host: {sorted(unknown)}"}
                guids = {guid: body["index0"] for name in names for guid in self.hosts[name]}
                self._partition(body)["guids"] |= guids
            case ["DELETE", "resources", "pkeys", p_key]:
                return (200, {}) if self.partitions.pop(int(p_key, 16), None) else (404, {})
            case ["DELETE", "resources", "pkeys", p_key, "guids", guids]:
                for guid in guids.split(","):
                    self.partitions[int(p_key, 16)]["guids"].pop(guid, None)
            case _:
                return 404, {"error": f"no such call: {method} {path}"}
        return 200, {}

    def _partition(self, body: Any) -> dict[str, Any]:
        new = {"partition": f"api_pkey_{body['pkey']}", "ip_over_ib": body["ip_over_ib"], "guids": {}}
        return self.partitions.setdefault(int(body["pkey"], 16), new)

    def _shown(self, p_key: int) -> dict[str, Any]:
        item = self.partitions[p_key]
        guids = [{"guid": guid, "membership": "full", "index0": index0} for guid, index0 in item["guids"].items()]
        return {**item, "guids": guids}


class _Handler(BaseHTTPRequestHandler):
    server: UfmServer

    def log_message(self, *words: object) -> None:
        """Suppress per-request logging."""

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        path = unquote(urlsplit(self.path).path).removeprefix("/ufmRestV3/").removeprefix("/ufmRest/").rstrip("/")
        self.server.calls.append(f"{self.command} {path}")
        status, answer = self.server.answer(self.command, path, body)
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815


@contextmanager
def running_ufm() -> Iterator[UfmServer]:
    with UfmServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
