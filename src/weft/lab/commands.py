"""The end of a lab that takes commands; `control` is the other end. The lab carries them out between two MADs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.json_lines import CommandServer
from weft.lab.lab import Lab
from weft.lab.registry import Entry


def serve_commands(lab: Lab, entry: Entry) -> CommandServer:
    return CommandServer(entry.socket, _commands(lab), with_progress=("traffic", "capture"))


def _commands(lab: Lab) -> dict[str, Callable[..., Any]]:
    return {
        "state": lab.state,
        "break": lab.break_cable,
        "degrade": lab.degrade,
        "fix": lab.fix,
        "swap": lab.swap,
        "load": lambda jobs, **words: lab.load(*jobs, **words),
        "unload": lambda names: lab.unload(*names),
        "advance": lab.advance,
        "load_state": lab.load_state,
        "now_s": lab.now_s,
        "host": lab.host,
        "rank_hosts": lab.rank_hosts,
        "port_counts": lab.port_counts,
        "sysfs": lab.sysfs,
        "ip_ports": lab.ip_ports,
        "traffic": lab.traffic,
        "capture": lab.capture,
        "nodes": lambda: [
            [node.name, node.kind.name.lower()] for node in map(lab.fabric.node, lab.subnet.devices.nodes)
        ],
        "links": lambda: [[str(link.a), str(link.b), link.label] for link in lab.fabric.all_links()],
        "down": lab.server.stop,
    }
