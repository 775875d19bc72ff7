"""The service under load: reads and writes at a fixed rate on loopback, then many writers at once.

    python benchmarks/serve.py [--hosts 64] [--seconds 60] [--reads 500] [--writes 50] [--writers 20] [--database URL]

The service is `weft serve` on a lab of its own, in another process, with weft's subnet manager behind it: a write is
answered when the devices have it. Requests start when they are due, whether or not earlier ones are answered, and a
latency counts from then: a service that stalls is charged for all that waited.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

SEED = 1
CONNECTIONS = 32
PARTITIONS = 20
PARTS = ("partitions", "partitions/0x0101", "partitions/0x0105/members/{guid}", "tenants", "ports?host=h1")


@dataclass
class Counted:
    name: str
    latencies_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def line(self, wanted_per_s: float) -> str:
        shown = sorted(self.latencies_s)
        p50, p99, most = (shown[min(int(len(shown) * part), len(shown) - 1)] * 1e3 for part in (0.5, 0.99, 1))
        return (
            f"{self.name:7}{wanted_per_s:5.0f}/s  {len(shown):6} answered  {len(self.errors):3} errors  "
            f"p50 {p50:7.1f} ms  p99 {p99:7.1f} ms  max {most:7.1f} ms"
        )


class Client:
    """HTTP/1.1 over kept connections: a library would cost more than the service."""

    def __init__(self, url: str, token: str) -> None:
        self.host, port = url.removeprefix("http://").split(":")
        self.port, self.token = int(port), token
        self.free: asyncio.LifoQueue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.LifoQueue()

    async def open(self, connections: int) -> None:
        for _ in range(connections):
            self.free.put_nowait(await asyncio.open_connection(self.host, self.port))

    async def call(self, method: str, path: str, body: object = None, tag: str = "") -> tuple[int, str, bytes]:
        sent = b"" if body is None else json.dumps(body).encode()
        match = f"If-Match: {tag}\r\n" if tag else ""
        head = (
            f"{method} /api/v1/{path} HTTP/1.1\r\nHost: weft\r\nAuthorization: Bearer {self.token}\r\n"
            f"{match}Content-Length: {len(sent)}\r\n\r\n"
        )
        reader, writer = await self.free.get()
        if reader.at_eof():  # the service closes what is idle
            writer.close()
            reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(head.encode() + sent)
            told = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = re.search(r"content-length: (\d+)", told)
            answer = await reader.readexactly(int(length[1])) if length else b""
        finally:
            self.free.put_nowait((reader, writer))
        found = re.search(r"etag: (\S+)", told)
        return int(told.split()[1]), found[1] if found else "", answer


async def at_rate(client: Client, per_s: float, seconds: float, counted: Counted, call) -> None:
    async def one(due_s: float) -> None:
        try:
            status, _, answer = await call()
            if status >= 400:
                counted.errors.append(f"{status} {answer[:200]!r}")
        except (OSError, EOFError) as error:
            counted.errors.append(repr(error))
        counted.latencies_s.append(time.perf_counter() - due_s)

    start_s, tasks = time.perf_counter(), []
    for n in range(int(per_s * seconds)):
        due_s = start_s + n / per_s
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due_s)))
    await asyncio.gather(*tasks)


async def hold(client: Client, guids: list[str], options: argparse.Namespace) -> bool:
    """Reads and writes together, at their rates."""
    chance = random.Random(SEED)
    reads, writes = Counted("reads"), Counted("writes")

    async def read():
        return await client.call("GET", chance.choice(PARTS).format(guid=guids[0]))

    async def write():
        path = f"partitions/{0x0101 + chance.randrange(PARTITIONS):#06x}/members/{chance.choice(guids[1:])}"
        return await client.call("PUT", path, {"membership": chance.choice(("full", "limited"))})

    await asyncio.gather(
        at_rate(client, options.reads, options.seconds, reads, read),
        at_rate(client, options.writes, options.seconds, writes, write),
    )
    for counted, per_s in ((reads, options.reads), (writes, options.writes)):
        print(counted.line(per_s))
        for error in counted.errors[:3]:
            print(f"    {error}")
    return not reads.errors and not writes.errors


async def contend(client: Client, guids: list[str], writers: int, each: int) -> bool:
    """Writers read a partition, add a port, and put it back with the tag they saw: none may lose another's."""
    await client.call("PUT", "partitions/0x0200", {"name": "contended"})
    wanted = [f"0x{0xC0FFEE << 24 | n:016x}" for n in range(writers * each)]
    tries = 0

    async def writer(mine: list[str]) -> None:
        nonlocal tries
        for guid in mine:
            status = 0
            while status != 200:
                _, tag, answer = await client.call("GET", "partitions/0x0200")
                seen = json.loads(answer)
                members = [*({**one, "absent": True} for one in seen["members"]), {"guid": guid, "absent": True}]
                status, _, answer = await client.call(
                    "PUT", "partitions/0x0200", {"name": "contended", "members": members}, tag
                )
                tries += 1
                if status not in (200, 412):
                    raise SystemExit(f"{status} {answer!r}")

    start_s = time.perf_counter()
    await asyncio.gather(*(writer(wanted[n::writers]) for n in range(writers)))
    took_s = time.perf_counter() - start_s
    found = [one["guid"] for one in json.loads((await client.call("GET", "partitions/0x0200"))[2])["members"]]
    is_good = sorted(found) == sorted(wanted)
    print(
        f"{writers} writers of one partition: {len(wanted)} updates in {took_s:.1f} s, {tries} tries, "
        f"{len(set(wanted) - set(found))} lost, {len(found) - len(set(found))} doubled"
    )
    return is_good


async def measure(url: str, token: str, options: argparse.Namespace) -> bool:
    client = Client(url, token)
    await client.open(CONNECTIONS)
    guids = [one["guid"] for one in json.loads((await client.call("GET", "ports"))[2])]
    for n in range(PARTITIONS):
        members = [{"guid": guid} for guid in guids[n % 4 :: 4]] + ([{"guid": guids[0]}] if n == 4 and n % 4 else [])
        status, _, answer = await client.call(
            "PUT", f"partitions/{0x0101 + n:#06x}", {"name": f"p{n}", "members": members}
        )
        assert status == 200, answer
    held = await hold(client, guids, options)
    return await contend(client, guids, options.writers, 10) and held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("hosts", 64), ("seconds", 60), ("reads", 500), ("writes", 50), ("writers", 20)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--database", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o700)
        weft = Path(sys.executable).with_name("weft")
        database = ["--database", options.database] if options.database else []
        spec = f"fat-tree:hosts={options.hosts},radix=16"
        with subprocess.Popen(
            [weft, "serve", spec, "--port", "0", *database],
            env={**os.environ, "XDG_RUNTIME_DIR": folder},
            stdout=subprocess.PIPE,
            text=True,
        ) as service:
            try:
                said = "".join(service.stdout.readline() for _ in range(3))
                print(said.splitlines()[0].split(", its")[0], f"({spec})")
                url, token = re.search(r"http://[\d.:]+", said)[0], re.search(r"weft_\S+", said)[0]
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
