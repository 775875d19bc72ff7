"""A subnet with unmodified programs on its hosts, through weft's own libibumad."""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE_S, wait_until

from weft.fabric.model import Fabric
from weft.lab import preload
from weft.lab.attach import Attachments
from weft.mad.subnet import Subnet


class Hosts:
    """A subnet with programs on its hosts."""

    def __init__(self, fabric: Fabric, folder: Path, library: Path, peer: Callable[[str], str]) -> None:
        self.subnet = Subnet(fabric)
        self.folder, self.library, self.peer = folder, library, peer
        self.attachments = Attachments(self.subnet, folder / "lab")
        self.ends = False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while not self.ends:
            deadline_s = self.attachments.next_deadline_s()
            wait_s = 0.05 if deadline_s is None else min(0.05, max(0.0, deadline_s - time.monotonic()))
            if select.select([self.attachments], [], [], wait_s)[0]:
                self.attachments.on_ready()
            self.attachments.on_timer()
            self.subnet.due()

    def close(self) -> None:
        if self.ends:
            return
        self.ends = True
        self.thread.join()
        self.attachments.close()

    def start(self, host: str, program: str, *arguments: str, stdin: int | None = None) -> subprocess.Popen[str]:
        variables = preload.environment(self.library, self.folder / "lab", host)
        osm = {"OSM_CACHE_DIR": str(self.folder), "OSM_TMP_DIR": str(self.folder)}
        return subprocess.Popen(
            [self.peer(program), *arguments],
            cwd=self.folder,
            env=os.environ | variables | osm,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, host: str, program: str, *arguments: str) -> str:
        done = self.start(host, program, *arguments)
        out, _ = done.communicate(timeout=PATIENCE_S)
        assert done.returncode == 0, f"{program} {arguments}: {out[-1500:]}"
        return out

    @contextmanager
    def opensm(self, host: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run OpenSM on a host for the duration of the block, which begins when the subnet is up."""
        log = self.folder / "opensm.log"
        running = self.start(host, "opensm", "-f", str(log), "-e", "-s", "0", "-D", "0x83", "-d", "2", *arguments)
        try:
            wait_until(
                lambda: log.is_file() and "SUBNET UP" in log.read_text(),
                lambda: f"{log.read_text()[-1500:] if log.is_file() else ''}\nSUBNET UP",
                lambda: running.poll() is None,
            )
            yield running
        finally:
            if running.poll() is None:
                running.terminate()
                running.communicate(timeout=PATIENCE_S)
