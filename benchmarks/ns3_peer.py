"""Run ns-3 on the traffic of weft's packet engine: permutation traffic on a three-level fat tree, for `packet.py`.

    run_ns3(128, destinations) -> {"packet_hops": …, "wall_s": …, …}, or the reason why ns-3 is missing

`ns3_permutation.cc` is compiled once against Debian's ns-3 (libns3-dev, 3.37 in Debian 12) and stored in weft's cache.

Debian builds ns-3 with the "release" profile: assertions are compiled out, but logging is compiled in, so that every
function
checks whether its log is on. The same release built from source with the "optimized" profile (-O3 for this processor,
no logging)
was 1.3 times as fast on 128 hosts and 1.2 times on 1,024: allow for that in a comparison.

It simulates less than weft: UDP over IPv4, store-and-forward switches without latency and with unlimited output
queues, so no
credits, lanes or acknowledgements. A full packet is 4,126 bytes on the line, the last one short. Compare with
messages on UC,
not RC, whose acknowledgements are packets too.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("ns3_permutation.cc")
MODULES = ("ns3-point-to-point", "ns3-internet", "ns3-network", "ns3-core")
FLAGS = ("-O2", "-std=c++17")


def run_ns3(hosts: int, destinations: list[int], bytes_per_flow: int = 2_000_000) -> dict[str, float] | str:
    """Run ns-3 with host i sending to destinations[i]; hosts are numbered pod by pod, edge switch by edge switch.

    `wall_s` and `user_s` are those of the simulation alone, `setup_s` those of building the network before it;
    `mbyte` is the
    peak of the whole process, `last_arrival_ps` simulated time. A string is the reason for missing figures.
    """
    k = _radix(hosts)
    if sorted(destinations) != list(range(hosts)) or any(i == to for i, to in enumerate(destinations)):
        raise ValueError(f"the destinations are not a permutation of {hosts} hosts in which none sends to itself")
    program = _compile()
    if isinstance(program, str):
        return program
    command = [str(program), str(k), str(bytes_per_flow)]
    done = subprocess.run(command, input=" ".join(map(str, destinations)), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ns-3 failed on {hosts} hosts: {done.stderr.strip()}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures | {"packet_hops_per_s": figures["packet_hops"] / figures["wall_s"]}


def _radix(hosts: int) -> int:
    for k in range(2, 129, 2):
        if k**3 // 4 == hosts:
            return k
    raise ValueError(f"a k-ary fat tree has k³/4 hosts, k even: 16, 54, 128, 250, 432, 686, 1,024, …; not {hosts}")


def _compile() -> Path | str:
    """Return the program, cached for this source and these flags, or the reason why there is none."""
    for tool in ("g++", "pkg-config"):
        if not shutil.which(tool):
            return f"ns-3 is not measured: {tool} is not installed: make peers"
    version, flags_text = (
        _output("pkg-config", *arguments, *MODULES) for arguments in (["--modversion"], ["--cflags", "--libs"])
    )
    if version is None or flags_text is None:
        return "ns-3 is not measured: libns3-dev is not installed: make peers"
    # Only ns-3's own libraries: Debian's .pc files also name libgsl.so, whose -dev package they do not pull in.
    flags = [*FLAGS, str(SOURCE), *(word for word in shlex.split(flags_text) if word.startswith(("-I", "-L", "-lns3")))]
    digest = hashlib.sha256()
    for part in (SOURCE.read_text(encoding="utf-8"), version, flags_text, platform.machine(), *FLAGS):
        digest.update(part.encode() + b"\0")
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"
    program = folder / f"ns3-{digest.hexdigest()[:16]}"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(f".{os.getpid()}")  # renamed when done: an incomplete program is never run
        compiled = subprocess.run(["g++", *flags, "-o", str(unfinished)], capture_output=True, text=True)
        if compiled.returncode:
            raise RuntimeError(f"{SOURCE.name} does not compile:\n{compiled.stderr.strip()}")
        unfinished.replace(program)
    return program


def _output(*command: str) -> str | None:
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode else done.stdout
