"""`weft serve` as a program, that can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
from tests.patience import PATIENCE_S, wait_until
from tests.warm import WARM, kill


class Service:
    """A running `weft serve` with an admin token. It needs the fixture `warm`."""

    def __init__(self, folder: Path, *where: str) -> None:
        self.log, self.where = folder / "serve.log", where
        self.database = f"sqlite:///{folder}/ledger.db"
        add = ["serve", "token", "add", "me", "--role", "admin", "--database", self.database]
        messages = subprocess.run([os.environ[WARM], *add], capture_output=True, text=True, check=True)
        self.token = messages.stdout.strip()

    def start(self, port: str = "0", **environment: str) -> None:
        words = [os.environ[WARM], "serve", *self.where, "--port", port, "--database", self.database]
        with self.log.open("w") as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=out, env={**os.environ, **environment})
        wait_until(lambda: "ledger" in self.log.read_text(), self.log.read_text, lambda: self.process.poll() is None)
        self.url = self.log.read_text().split(" at ")[-2].split(",")[0]

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.request(
            method, f"{self.url}{path}", json=body, headers=headers, timeout=PATIENCE_S, trust_env=False
        )

    def end(self, how: signal.Signals) -> None:
        if how == signal.SIGKILL:
            kill(self.process)
        self.process.send_signal(how)
        self.process.wait(PATIENCE_S)
