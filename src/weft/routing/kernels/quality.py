"""Walk the flows of a traffic pattern and count them on every link.

A link is named by the port slot that sends into it. A host stands at a switch, answers to `paths` LIDs from `lid` on,
and what it is sent spreads evenly over them.

    lft       uint8[switch, lid] -> out port
    leads_to  int32[slot] -> the switch at the other end, or -1
    load      float64[slot] -> flows; fractions are of powers of two, so that sums are exact in any order
"""

from __future__ import annotations

from weft.jit import inlined, kernel


@inlined
def next_slot(here, to, base, n_ports, lft):
    """The port slot that a switch sends packets for a LID out of, or -1. NO_ROUTE is more than any switch has ports."""
    port = lft[here, to]
    return -1 if port > n_ports[here] else base[here] + port


@kernel
def count_path(here, to, end, amount, base, n_ports, leads_to, peer, lft, load):
    """Add `amount` to every link from a switch to the port slot `end`; False if that is not where the path ends."""
    for _ in range(len(base)):  # who passes a switch twice goes round for ever
        slot = next_slot(here, to, base, n_ports, lft)
        if slot < 0:
            return False
        load[slot] += amount
        here = leads_to[slot]
        if here < 0:
            return peer[slot] == end
    return False


@kernel
def count_all_to_all(host, at, lid, paths, sources, hosts, base, n_ports, leads_to, peer, lft, load):
    """Every host to every other; `sources` are the switches with `hosts`. Returns a (source, receiver) that fails."""
    for receiver in range(len(host)):
        for path in range(paths[receiver]):
            to = lid[receiver] + path
            for which in range(len(sources)):
                senders = hosts[which] - (sources[which] == at[receiver])
                if senders and not count_path(
                    sources[which],
                    to,
                    host[receiver],
                    senders / paths[receiver],
                    base,
                    n_ports,
                    leads_to,
                    peer,
                    lft,
                    load,
                ):
                    return which, receiver
    for sender in range(len(host)):
        load[host[sender]] += len(host) - 1
    return -1, -1


@kernel
def count_flows(flows, host, at, lid, paths, base, n_ports, leads_to, peer, lft, load):
    """Flow by flow, (sender, receiver). Returns the first that does not arrive, or -1."""
    for index in range(len(flows)):
        sender, receiver = flows[index, 0], flows[index, 1]
        load[host[sender]] += 1
        for path in range(paths[receiver]):
            if not count_path(
                at[sender],
                lid[receiver] + path,
                host[receiver],
                1 / paths[receiver],
                base,
                n_ports,
                leads_to,
                peer,
                lft,
                load,
            ):
                return index
    return -1


@kernel
def heaviest_on_paths(flows, host, at, lid, paths, base, n_ports, leads_to, lft, load, heaviest):
    """For each flow the largest load of any link on its way. The flows are known to arrive."""
    for index in range(len(flows)):
        sender, receiver = flows[index, 0], flows[index, 1]
        most = load[host[sender]]
        for path in range(paths[receiver]):
            here = at[sender]
            while here >= 0:
                slot = next_slot(here, lid[receiver] + path, base, n_ports, lft)
                most = max(most, load[slot])
                here = leads_to[slot]
        heaviest[index] = most
