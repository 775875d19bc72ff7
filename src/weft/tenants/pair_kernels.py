"""A kernel that walks all pairs of all partitions hop by hop, with `weft.fabric.kernels.forwarding`."""

from __future__ import annotations

import numpy as np

from weft.fabric.forwarding import Reason
from weft.fabric.kernels.forwarding import walk
from weft.ids import PKey
from weft.jit import lean_kernel

LEAK, CUT = 0, 1  # kinds of pairs: reachable but not promised, promised but not reachable
LIMITED, FULL = 1, 2  # membership; 0: none
NO_KEY = -1  # instead of a Reason: the sender does not hold the key
_ARRIVED = int(Reason.ARRIVED)
_FULL_KEY = int(PKey.FULL_MEMBER)


@lean_kernel
def walk_pairs(a, begin, leads, p_key, sl, slot, own, let_in, promised, path_sl, ways, pairs, totals, vls, out, lanes):
    """Walk every ordered pair of ports of each partition: ports that hold the P_Key, can inject it, or should have it.

    begin    int64[partition + 1] -> first row of the four arrays below; p_key, sl: int64[partition]
    leads    int64[partition] -> end of its rows with a full member by any table, which come first
    own      int8[row]: membership by the port's table; let_in: by the switch port before it; promised: by the partition
    path_sl  uint8[switch, lid] or empty: the SL of paths if routing chose it
    ways     int64[way] -> one service level of each group with equal SL to VL tables; the first is 0
    pairs    int64[most, 7]: LEAK or CUT, partition, sender, receiver, P_Key, bits of arriving ways, Reason
    out      int32[64], lanes int8[64]: scratch space for one path
    totals   int64[4]: leaks, cuts, promised pairs, those that arrive; vls: int64[partition] bits of their lanes
    """
    for part in range(len(p_key)):
        for i in range(begin[part], begin[part + 1]):
            for j in range(begin[part], begin[part + 1] if i < leads[part] else leads[part]):
                should = promised[i] > 0 and promised[j] > 0 and (promised[i] == FULL or promised[j] == FULL)
                can = let_in[i] > 0 and own[j] > 0 and (let_in[i] == FULL or own[j] == FULL)
                if i == j or not (should or can):
                    continue
                sender, dlid = np.int64(slot[i]), np.int64(a.lid[slot[j]])
                kind, reason, arrives, key = LEAK, _ARRIVED, 0, p_key[part]
                if should:
                    kind = CUT
                    totals[2] += 1
                    key |= _FULL_KEY if own[i] == FULL else 0
                    level = sl[part]
                    if len(path_sl):
                        level = np.int64(path_sl[a.row[a.node[a.peer[sender]]], dlid])
                    reason = NO_KEY
                    if own[i] > 0:
                        hops, _, reason = walk(a, sender, dlid, level, key, 0, out, lanes)
                    if reason == _ARRIVED:
                        totals[3] += 1
                        for hop in range(hops):
                            vls[part] |= 1 << lanes[hop]
                        continue
                else:
                    key |= _FULL_KEY if let_in[i] == FULL else 0
                    for way in range(len(ways)):
                        _, _, stopped = walk(a, sender, dlid, ways[way], key, 0, out, lanes)
                        arrives |= (1 if stopped == _ARRIVED else 0) << way
                        reason = stopped if arrives == 0 else _ARRIVED
                row = totals[LEAK] + totals[CUT]
                if row < len(pairs):
                    pairs[row, 0], pairs[row, 1], pairs[row, 2], pairs[row, 3] = kind, part, sender, slot[j]
                    pairs[row, 4], pairs[row, 5], pairs[row, 6] = key, arrives, reason
                totals[kind] += 1
