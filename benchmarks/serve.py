"""Measure the service under load: reads and writes at a fixed rate on loopback, then many concurrent writers.

    python benchmarks/serve.py [--fabric fat-tree:hosts=64,radix=16] [--seconds 60] [--reads 500] [--writes 50]
                               [--everything 1] [--writers 20] [--database URL]

    python benchmarks/serve.py --fabric fat-tree:hosts=4500,server=dgx-h100      # 36,000 ports; takes minutes to start

The service is `weft serve` on its own lab, with weft's subnet manager: a write is answered once the devices have it.
Half of the
hosts are in tenants of an intent, the others in partitions made by UFM's calls, eight hosts each. Reads are of one
object or of
short lists, by both APIs; `everything` requests all ports or all members, in turn, so many times per second. A write
adds a GUID
to a partition, or removes one that was added: each is a change. Afterwards the members are compared with the responses.

Requests start when they are due, whether or not earlier ones are answered, and a latency counts from then: a service
that stalls
is charged for all that waited. The client shares the machine with the service, so it is HTTP/1.1 by hand over
persistent
connections: a library would cost more than the measured work. Its processor time is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

SEED = 1
OWN, UFM = "/api/v1", "/ufmRest"
HOSTS_EACH = 8  # per tenant or partition
FIRST = 0x0101  # P_Key of the partitions made by UFM's calls
CONTENDED = f"{OWN}/partitions/0x7001"
PIECE_BYTES = 1 << 20
READERS, CHANGERS = 32, 200  # connections; many writes wait for the devices at the same time

Answer = tuple[int, str, bytes]  # status, tag, body


@dataclass
class RequestStats:
    name: str
    latencies_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def line(self, target_per_s: float) -> str:
        latencies = sorted(self.latencies_s)
        p50, p99, most = (
            latencies[min(int(len(latencies) * part), len(latencies) - 1)] * 1e3 for part in (0.5, 0.99, 1)
        )
        return (
            f"{self.name:11}{target_per_s:5.0f}/s  {len(latencies):6} answered  {len(self.errors):3} errors  "
            f"p50 {p50:7.1f} ms  p99 {p99:7.1f} ms  max {most:7.1f} ms"
        )


class Client:
    """A pool of persistent connections; waiting for a free one counts too."""

    def __init__(self, url: str, token: str, connections: int) -> None:
        self.host, port = url.removeprefix("http://").split(":")
        self.port, self.token, self.room = int(port), token, asyncio.Semaphore(connections)
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def call(self, method: str, path: str, body: object = None, tag: str = "") -> Answer:
        sent = b"" if body is None else json.dumps(body).encode()
        match = f"If-Match: {tag}\r\n" if tag else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: weft\r\nAuthorization: Bearer {self.token}\r\n"
            f"{match}Content-Length: {len(sent)}\r\n\r\n"
        )
        async with self.room:
            return await self._exchange(head.encode() + sent)

    async def _exchange(self, sent: bytes) -> Answer:
        while self.free and self.free[-1][0].at_eof():  # the service closes idle connections
            self.free.pop()[1].close()
        connection = (
            self.free.pop() if self.free else await asyncio.open_connection(self.host, self.port, limit=PIECE_BYTES)
        )
        reader, writer = connection
        writer.write(sent)
        headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = re.search(r"content-length: (\d+)", headers)
        answer = await _content(reader, int(length[1])) if length else b""
        self.free.append(connection)
        etag = re.search(r"etag: (\S+)", headers)
        return int(headers.split()[1]), etag[1] if etag else "", answer

    async def sure(self, method: str, path: str, body: object = None) -> bytes:
        status, _, answer = await self.call(method, path, body)
        if status >= 400:
            raise SystemExit(f"{method} {path}: {status} {answer[:500]!r}")
        return answer

    async def read(self, path: str):
        return json.loads(await self.sure("GET", path))


async def _content(reader: asyncio.StreamReader, length: int) -> bytes:
    """Read a body in pieces; `readexactly` would copy the received data for each piece."""
    pieces = []
    while length:
        pieces.append(await reader.read(min(length, PIECE_BYTES)))
        if not pieces[-1]:
            raise EOFError("the service closed the connection within an answer")
        length -= len(pieces[-1])
    return b"".join(pieces)


async def at_rate(per_s: float, seconds: float, stats: RequestStats, call: Callable[[], Awaitable[Answer]]) -> None:
    async def request(due_s: float) -> None:
        try:
            status, _, answer = await call()
            if status >= 400:
                stats.errors.append(f"{status} {answer[:200]!r}")
        except (OSError, EOFError) as error:
            stats.errors.append(repr(error))
        stats.latencies_s.append(time.perf_counter() - due_s)

    start_s, tasks = time.perf_counter(), []
    for n in range(int(per_s * seconds)):
        due_s = start_s + n / per_s
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        tasks.append(asyncio.create_task(request(due_s)))
    await asyncio.gather(*tasks)


# -- the work ---------------------------------------------------------------------------------------------------------


class Work:
    """The state of the service, and requests that fit it."""

    def __init__(self, url: str, token: str) -> None:
        self.client, self.chance = Client(url, token, READERS), random.Random(SEED)
        self.changer = Client(url, token, CHANGERS)
        self.members: dict[int, set[str]] = {}  # by P_Key of UFM's calls: GUIDs as UFM writes them
        self.stays: dict[int, list[str]] = {}  # members that are not removed
        self.added: deque[tuple[int, str]] = deque()  # acknowledged additions, to be removed again
        self.hosts: dict[str, list[str]] = {}  # GUIDs of their ports
        self.systems: list[str] = []
        self.new = (f"{0xC0FFED << 24 | n:016x}" for n in itertools.count())
        self.in_turn = itertools.cycle(
            (f"{UFM}/resources/ports?sys_type=Computer", f"{UFM}/resources/pkeys?guids_data=true", f"{OWN}/ports")
        )

    async def begin(self) -> None:
        start_s = time.perf_counter()
        for port in await self.client.read(f"{OWN}/ports"):
            self.hosts.setdefault(port["host"], []).append(port["guid"].removeprefix("0x"))
        self.systems = [system["guid"] for system in await self.client.read(f"{UFM}/resources/systems?type=host")]
        names = sorted(self.hosts)[1:]  # the first is the subnet manager's: no tenant has it alone
        some = [names[n : n + HOSTS_EACH] for n in range(0, len(names), HOSTS_EACH)]
        tenants = {f"t{n}": {"hosts": hosts} for n, hosts in enumerate(some[: len(some) // 2], 1)}
        await self.client.sure("PUT", f"{OWN}/intent", {"p_keys": "0x4000-0x6fff", "tenant": tenants})
        self.members = {FIRST + n: self._guids(hosts) for n, hosts in enumerate(some[len(some) // 2 :])}
        self.stays = {p_key: sorted(guids) for p_key, guids in self.members.items()}
        await asyncio.gather(
            *(
                self.changer.sure("POST", f"{UFM}/resources/pkeys", {"pkey": f"{p_key:#x}", "guids": sorted(guids)})
                for p_key, guids in self.members.items()
            )
        )
        await self.client.sure("GET", f"{UFM}/resources/ports?sys_type=Computer")  # build the cached response
        ports = sum(map(len, self.hosts.values()))
        print(
            f"{len(names):,} hosts, {ports:,} ports; {len(tenants)} tenants and {len(self.members)} partitions, made "
            f"in {time.perf_counter() - start_s:.1f} s"
        )

    def _guids(self, hosts: list[str]) -> set[str]:
        return {guid for host in hosts for guid in self.hosts[host]}

    async def read(self) -> Answer:
        p_key = self.chance.choice(list(self.members))
        guid = self.chance.choice(self.stays[p_key])
        paths = (
            f"{OWN}/partitions",
            f"{OWN}/partitions/{p_key:#06x}",
            f"{OWN}/partitions/{p_key:#06x}/members/0x{guid}",
            f"{OWN}/tenants",
            f"{OWN}/ports?host={self.chance.choice(list(self.hosts))}",
            f"{UFM}/app/ufm_version",
            f"{UFM}/resources/pkeys",
            f"{UFM}/resources/pkeys/{p_key:#x}?guids_data=true",
            f"{UFM}/resources/ports?system={self.chance.choice(self.systems)}",
        )
        return await self.client.call("GET", self.chance.choice(paths))

    async def everything(self) -> Answer:
        return await self.client.call("GET", next(self.in_turn))

    async def write(self) -> Answer:
        if self.added and self.chance.random() < 0.5:
            return await self._remove(*self.added.popleft())
        p_key, guid = self._new_member()
        self.members[p_key].add(guid)
        if self.chance.random() < 0.5:
            path = f"{OWN}/partitions/{p_key:#06x}/members/0x{guid}"
            response = await self.changer.call(
                "PUT", path, {"membership": self.chance.choice(("full", "limited")), "absent": True}
            )
        else:
            body = {"pkey": f"{p_key:#x}", "guids": [guid], "membership": "limited"}
            response = await self.changer.call("POST", f"{UFM}/resources/pkeys", body)
        if response[0] < 400:
            self.added.append((p_key, guid))
        else:
            self.members[p_key].remove(guid)
        return response

    async def _remove(self, p_key: int, guid: str) -> Answer:
        body = {"pkey": f"{p_key:#x}", "guids": [guid]}
        response = await self.changer.call("POST", f"{UFM}/actions/remove_guids_from_pkey", body)
        if response[0] < 400:
            self.members[p_key].remove(guid)
        return response

    def _new_member(self) -> tuple[int, str]:
        """Return a partition, and a port of another to add; a new GUID if all are members already."""
        p_key, other = self.chance.sample(list(self.members), 2)
        new = sorted(self.members[other] - self.members[p_key])
        return p_key, self.chance.choice(new) if new else next(self.new)

    async def differences(self) -> int:
        """Return the number of GUIDs that are wrongly in a partition, or missing from one."""
        partitions = await self.client.read(f"{UFM}/resources/pkeys?guids_data=true")
        return sum(
            len(guids ^ {member["guid"] for member in partitions[f"{p_key:#x}"]["guids"]})
            for p_key, guids in self.members.items()
        )


async def hold(work: Work, options: argparse.Namespace) -> bool:
    """Run reads and writes together, at their rates."""
    calls = {"reads": work.read, "writes": work.write, "everything": work.everything}
    stats = {name: RequestStats(name) for name in calls if getattr(options, name)}
    await asyncio.gather(
        *(at_rate(getattr(options, name), options.seconds, each, calls[name]) for name, each in stats.items())
    )
    for name, each in stats.items():
        print(each.line(getattr(options, name)))
        for error in each.errors[:3]:
            print(f"    {error}")
    differences = await work.differences()
    print(f"{differences} members differ from the responses")
    return not differences and not any(each.errors for each in stats.values())


async def contend(client: Client, writers: int, each: int) -> bool:
    """Let writers read a partition, add a port, and put it back with the tag they read: no update may be lost."""
    await client.sure("PUT", CONTENDED, {"name": "contended"})
    expected = [f"0x{0xC0FFEE << 24 | n:016x}" for n in range(writers * each)]
    tries = 0

    async def writer(mine: list[str]) -> None:
        nonlocal tries
        for guid in mine:
            status = 0
            while status != 200:
                _, tag, answer = await client.call("GET", CONTENDED)
                partition = json.loads(answer)
                members = [
                    *({**member, "absent": True} for member in partition["members"]),
                    {"guid": guid, "absent": True},
                ]
                status, _, answer = await client.call("PUT", CONTENDED, {"name": "contended", "members": members}, tag)
                tries += 1
                if status not in (200, 412):
                    raise SystemExit(f"{status} {answer!r}")

    start_s = time.perf_counter()
    await asyncio.gather(*(writer(expected[n::writers]) for n in range(writers)))
    took_s = time.perf_counter() - start_s
    guids = [member["guid"] for member in (await client.read(CONTENDED))["members"]]
    print(
        f"{writers} writers of one partition: {len(expected)} updates in {took_s:.1f} s, {tries} tries, "
        f"{len(set(expected) - set(guids))} lost, {len(guids) - len(set(guids))} doubled"
    )
    return sorted(guids) == sorted(expected)


async def measure(url: str, token: str, options: argparse.Namespace) -> bool:
    work = Work(url, token)
    await work.begin()
    held = await hold(work, options)
    return await contend(work.changer, options.writers, 10) and held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fabric", default="fat-tree:hosts=64,radix=16")
    for name, default in (("seconds", 60), ("reads", 500), ("writes", 50), ("everything", 1), ("writers", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--database", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o700)
        weft = Path(sys.executable).with_name("weft")
        database = ["--database", options.database] if options.database else []
        start_s = time.perf_counter()
        with subprocess.Popen(
            [weft, "serve", options.fabric, "--port", "0", *database],
            env={**os.environ, "XDG_RUNTIME_DIR": folder},
            stdout=subprocess.PIPE,
            text=True,
        ) as service:
            try:
                output = "".join(service.stdout.readline() for _ in range(3))
                print(f"weft serve {options.fabric}: up in {time.perf_counter() - start_s:.1f} s")
                url, token = re.search(r"http://[\d.:]+", output)[0], re.search(r"weft_\S+", output)[0]
                is_good = asyncio.run(measure(url, token, options))
                spent = os.times()
            finally:
                service.terminate()
    service_spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"processor time: client {spent.user + spent.system:.1f} s, service with its start "
        f"{service_spent.ru_utime + service_spent.ru_stime:.1f} s"
    )
    sys.exit(not is_good)


if __name__ == "__main__":
    main()
