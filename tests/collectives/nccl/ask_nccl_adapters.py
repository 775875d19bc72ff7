"""Ask a library of NCCL over which adapters its channels lie if a server lacks one: nccl_adapters.txt beside this.

    python ask_nccl_adapters.py ../../../nvidia/nccl/lib/libnccl.so.2 2.32.3 > nccl_adapters.txt

See ask_nccl.py for how to get the library.
"""

from __future__ import annotations

import re
import struct
import sys
from dataclasses import replace

from ask_nccl import Library, search

import weft
from weft.collectives.nccl.cluster import from_server
from weft.fabric import faults
from weft.fabric.catalog import server
from weft.fabric.files.nccl_topology import to_text

SERVERS = ("dgx-h100", "dgx-b200", "dgx-a100")


def channels(library: Library, name: str, missing: str) -> dict[str, list[str]]:
    """Return the adapter of each channel by pattern."""
    fabric = weft.load(f"star:hosts=2,server={name}")
    host = fabric.servers[0]
    topology = to_text(faults.remove_link(fabric, f"{host}/{missing}/1"), host)
    topology = re.sub(r"<net (?:(?!rail=)[^>])*/>", "", topology).replace("<net ", '<net coll="1" plane="-1" ')
    names = {int(dev): net for net, dev in re.findall(r'<net [^>]*name="([^"]+)"[^>]*dev="(\d+)"', topology)}
    whole = from_server(name, nodes=2)
    graphs = search(library, topology, replace(whole, nics=whole.nics - 1))
    at = library.layouts["ncclTopoGraph"]["inter"][0]
    return {
        pattern: [
            names[first & 0xFFFF] for first, _ in struct.iter_unpack("<qq", graph.memory[at : at + 16 * int(count)])
        ]
        for pattern, graph in graphs.items()
        if (count := graph.get("nChannels"))
    }


def main(path: str, version: str) -> None:
    library = Library(path)
    print(f"# The adapters of the channels that the search of NCCL {version} finds where a server lacks one of them.")
    print("# Server, missing adapter, pattern, adapters by channel.")
    for name in SERVERS:
        for missing in server(name).compute:
            for pattern, adapters in channels(library, name, missing).items():
                print(name, missing, pattern, ",".join(adapters))


if __name__ == "__main__":
    main(*sys.argv[1:])
