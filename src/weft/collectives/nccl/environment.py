"""NCCL's environment: the lists of NCCL_ALGO and NCCL_PROTO, and variables without effect in `weft nccl`, with reasons.

    permitted("NCCL_ALGO", "^NVLS,NVLSTree;broadcast:Ring", Collective.ALL_REDUCE, Algorithm)

Those that change something are options of `weft nccl`.
"""

from __future__ import annotations

from typing import TypeVar

from weft.collectives.kinds import Algorithm, Collective, Protocol, collective
from weft.errors import ConfigError, find_named

_Label = TypeVar("_Label", Algorithm, Protocol)


def permitted(variable: str, text: str, kind: Collective, labelled: type[_Label]) -> tuple[_Label, ...]:
    """Return the entries that a list allows for a collective, as NCCL parses it (parseList, src/graph/tuning.cc).

    Empty: no restriction. `^` allows all others. `;` separates lists; all but the first begin with their collective.
    """
    allowed: tuple[_Label, ...] = ()
    for place, entry in enumerate(part for part in text.split(";") if part):
        whose, colon, names = entry.rpartition(":")
        if place and not colon:
            raise ConfigError(f"{variable}={text}: {entry!r} must begin with its collective, allreduce:{entry}")
        labels = {part.label: part for part in labelled}
        named = [find_named(variable, part, labels) for part in names.removeprefix("^").split(",") if part]
        if not colon or collective(whose) == kind:
            allowed = tuple(part for part in labelled if (part in named) != names.startswith("^"))
            if not allowed:
                raise ConfigError(f"{variable}={text} allows nothing for {kind}: it takes {', '.join(labels)}")
    return allowed


# By name, or by how names begin: the longest that fits counts.
_WHY = {
    "NCCL_DEBUG": "nothing runs that could log. --explain says what was chosen and why",
    "NCCL_SOCKET": "a simulated job is on one network. --network tcp takes sockets; a connection has one thread",
    "NCCL_NSOCKS_PERTHREAD": "a connection over sockets has one thread here",
    "NCCL_NET": "a simulated job is on one network. --network chooses it",
    "NCCL_NET_GDR": "adapters reach GPU memory, or no adapter does. --no-gpudirect is the second",
    "NCCL_NET_SHARED": "buffers of the proxy have no size in the model",
    "NCCL_IB": "it is about queue pairs and packets, and those of a job that is alone lose nothing",
    "NCCL_IB_DISABLE": "--network tcp takes sockets",
    "NCCL_IB_HCA": "adapters are those of the compute rails that have a cable. Break a link in a lab to lose one",
    "NCCL_IB_GID": "addresses cost nothing. --network roce or roce-v1 says which packets",
    "NCCL_IB_ROCE_VERSION_NUM": "--network roce or roce-v1 says which packets",
    "NCCL_IB_ADAPTIVE_ROUTING": "--paths adaptive has the fabric route so",
    "NCCL_IB_AR_THRESHOLD": "--paths adaptive has the fabric route so, for messages of any size",
    "NCCL_IB_SL": "a single job shares its lanes with no other. `weft sim` has lanes",
    "NCCL_IB_TC": "a single job shares its lanes with no other. `weft sim` has lanes",
    "NCCL_IB_TIMEOUT": "no packet is lost here. `weft train` has failures",
    "NCCL_IB_RETRY_CNT": "no packet is lost here. `weft train` has failures",
    "NCCL_CROSS_NIC": "rings stay on their rails, as NCCL's search finds them where every GPU has NVSwitches",
    "NCCL_NCHANNELS_PER_NET_PEER": "a pair has as many as NCCL counts for its adapter. --channels is of all pairs",
    "NCCL_MIN_P2P_NCHANNELS": "--channels says how many there are for sends between pairs",
    "NCCL_MAX_P2P_NCHANNELS": "--channels says how many there are for sends between pairs",
    "NCCL_P2P": "GPUs of a server talk over what its template has. server=my-server.yaml is one of your own",
    "NCCL_SHM": "GPUs of a server talk over what its template has. server=my-server.yaml is one of your own",
    "NCCL_NTHREADS": "NCCL's figures are for as many threads as it takes by itself",
    "NCCL_LL128_NTHREADS": "NCCL's figures are for as many threads as it takes by itself",
    "NCCL_TOPO": "the server's template says it. `weft server import` makes one of NCCL_TOPO_DUMP_FILE's",
    "NCCL_GRAPH_FILE": "`estimate(graphs=Graphs(...))` of Python takes channels that another search found",
    "NCCL_TUNER": "--algo, --proto and --channels say what to take; --tuner writes a file for the plugin",
    "NCCL_MNNVL": "a rack with NVLink between its trays is one server: server=gb200-nvl72",
    "NCCL_LOCAL_REGISTER": "buffers are registered as windows (-R 2), or not at all",
    "NCCL_GRAPH_REGISTER": "buffers are registered as windows (-R 2), or not at all",
    "NCCL_CTA_POLICY": "the copy engine's collectives and NCCL's policies are not modelled",
    "NCCL_CE": "the copy engine's collectives are not modelled",
    "NCCL_SYM_NOWIN_ENABLE": "symmetric kernels are for buffers in windows here: -R 2",
    "NCCL_LAUNCH_MODE": "every kernel is started as NCCL's figures have it",
    "NCCL_COLLNET_NODE_THRESHOLD": "SHARP is taken from two nodes on. --NCCL_COLLNET_ENABLE 0 is without",
    "NCCL_NVLSTREE_MAX_CHUNKSIZE": "chunks of NVLS trees are NCCL's own",
    "NCCL_GIN": "symmetric kernels between servers take GPU-initiated networking as it is",
    "NCCL_": "this part of NCCL is not modelled",
}


def why_without_effect(name: str) -> str:
    """Return the reason why a variable of NCCL's has no effect, in words."""
    prefix = max((each for each in _WHY if name.startswith(each)), key=len)
    return _WHY[prefix]
