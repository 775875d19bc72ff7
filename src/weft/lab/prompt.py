"""The prompt of a lab: the name of a host and what to run there, or a command to the lab."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress

from weft.errors import ConfigError, WeftError
from weft.lab import control, programs
from weft.lab.registry import Entry
from weft.units import format_items

HELP = """\
h1 ibstat            run a program as host h1; the line is the shell's: pipes and > work
h1 opensm &          the same, beside the prompt; it ends with the lab
break leaf1/5        disconnect a cable, or all cables of a node or server
degrade leaf1/5 1e-9 set the bit error rate of a cable
fix [leaf1/5]        repair it; without a name, all cables
load [train=ring@80%] run background jobs; without one, show their rates
traffic [incast]     send a pattern of `weft sim` by the packet engine, along the present tables
nodes  links  ps     list nodes, links, attached programs
exit                 end the lab"""


class Prompt:
    """A command prompt for a lab that runs in another process."""

    def __init__(self, entry: Entry, say: Callable[[str], None] = print) -> None:
        self.entry, self.say = entry, say
        self._beside: list[subprocess.Popen[bytes]] = []
        self._place = programs.WorkingFolder()
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "help": lambda words: self.say(HELP),
            "nodes": lambda words: self._table("nodes"),
            "links": lambda words: self._table("links"),
            "ps": lambda words: self._clients(),
            "break": lambda words: self._do("break", words, "name"),
            "degrade": lambda words: self._do("degrade", words, "name", "bit_error_rate"),
            "fix": lambda words: self._do("fix", words or [""], "name"),
            "load": self._load,
            "traffic": lambda words: self._traffic(*words[:1]),
        }

    def _load(self, jobs: list[str]) -> None:
        ask, entry = control.ask, self.entry
        load = ask(entry, "load", None, jobs=jobs) if jobs else ask(entry, "load_state")
        gets = (f"{job['name']}: {job['gbit_s']:,.0f} of {job['wanted_gbit_s']:,.0f} Gbit/s" for job in load["jobs"])
        self.say("\n".join(gets) or "no job runs")

    def _traffic(self, pattern: str = "permutation") -> None:
        report = control.ask(self.entry, "traffic", None, pattern=pattern)
        self.say(
            f"{report['delivered']:,} of {format_items(report['messages'], 'message')}, "
            f"{report['goodput_gbit_s']:,.0f} Gbit/s, {format_items(report['retransmitted'], 'packet')} sent again; "
            "`perfquery` shows what the ports counted"
        )

    def run(self, read: Callable[[str], str] = input) -> None:
        """Read and execute lines until `exit` or the end of input."""
        self.say(f"lab {self.entry.name} is up: h1 ibstat, break leaf1/5, help, exit")
        try:
            while True:
                try:
                    line = read("weft> ").strip()
                except EOFError:
                    return
                except KeyboardInterrupt:
                    self.say("")
                    continue
                if line in ("exit", "quit"):
                    return
                try:
                    self.obey(line)
                except WeftError as error:
                    self.say(str(error))
                except KeyboardInterrupt:
                    self.say("ended")
        finally:
            self._end_all()

    def obey(self, line: str) -> None:
        if not line:
            return
        first, _, rest = line.partition(" ")
        command = self._commands.get(first)
        if command is None:
            self._run_on(first, rest.strip())
            return
        try:
            command(shlex.split(rest))
        except ValueError as error:
            raise ConfigError(f"{line}: {error}") from None

    def _run_on(self, host: str, line: str) -> None:
        where = control.ask(self.entry, "host", name=host)
        if not line:
            raise ConfigError(f"{host} what? As in: {host} ibstat")
        variables = programs.environment(where, self.entry.cache)
        if not line.endswith("&"):
            programs.attend(["sh", "-c", line], variables)
            return
        shell = ["sh", "-c", f"exec {line[:-1]}"]
        # A session of its own: an interrupt at the prompt is not for it.
        child = subprocess.Popen(
            shell,
            env=os.environ | variables,
            cwd=self._place.folder,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._beside.append(child)
        self.say(f"process {child.pid}")

    def _do(self, do: str, words: list[str], *names: str) -> None:
        if len(words) != len(names):
            raise ConfigError(f"{do} takes {' and '.join(names)}; help shows how")
        arguments: dict[str, str | float] = dict(zip(names, words, strict=True))
        if "bit_error_rate" in arguments:
            arguments["bit_error_rate"] = float(arguments["bit_error_rate"])
        changed = control.ask(self.entry, do, **arguments)
        self.say("\n".join(changed) or "nothing to do")

    def _table(self, do: str) -> None:
        self.say("\n".join("  ".join(row) for row in control.ask(self.entry, do)))

    def _clients(self) -> None:
        state = control.ask(self.entry, "state")
        rows = [f"{c['at']}{'  subnet manager' if c['is_sm'] else ''}" for c in state["clients"]]
        self.say("\n".join(rows) or "no program is attached")

    def _end_all(self) -> None:
        for child in self._beside:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGTERM)
        for child in self._beside:
            with suppress(subprocess.TimeoutExpired):
                child.wait(timeout=3)
        self._place.clean()
