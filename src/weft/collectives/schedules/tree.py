r"""Trees: up to add, down to tell, slice after slice.

        0                    each rank is at most 2 log2(n) hops from any other; a binary tree alone leaves
        |                    half of the links of its leaves unused, so NCCL uses two of them at once,
        4                    each for half of the buffer: a leaf of one is inside the other
      /   \                  (Sanders, Speck and Träff, 2009).
     2     6
    / \   / \
   1   3 5   7
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.schedules.program import Program, Sends


def double_tree_all_reduce(n_ranks: int, slices: int = 8) -> Program:
    """Return an all-reduce over two trees, each for half of the buffer."""
    trees = [Tree(parents(n_ranks), 0, slices), Tree(twin_parents(n_ranks), slices, slices)]
    n_rounds = max(slices + tree.top + tree.bottom - 1 for tree in trees)

    def make_round(number: int) -> Sends:
        return Sends.join([part for tree in trees for part in (tree.up(number), tree.down(number - tree.top))])

    return Program.of("double tree all-reduce", Collective.ALL_REDUCE, n_ranks, (1,) * n_rounds, make_round, 2 * slices)


def tree_broadcast(n_ranks: int, slices: int = 8, root: int = 0) -> Program:
    """Return a broadcast down a binary tree, slice after slice."""
    tree = Tree(_rooted(n_ranks, root), 0, slices)
    runs = (1,) * (slices + tree.bottom - 1)
    return Program.of("tree broadcast", Collective.BROADCAST, n_ranks, runs, tree.down, slices, root=root)


def tree_reduce(n_ranks: int, slices: int = 8, root: int = 0) -> Program:
    """Return a reduce up a binary tree, slice after slice."""
    tree = Tree(_rooted(n_ranks, root), 0, slices)
    runs = (1,) * (slices + tree.top - 1)
    return Program.of("tree reduce", Collective.REDUCE, n_ranks, runs, tree.up, slices, root=root)


def parents(n_ranks: int) -> NDArray[np.int64]:
    """Return the parent of each rank, -1 for the root 0, with neighbouring ranks near each other."""
    rank = np.arange(n_ranks)
    bit = rank & -rank
    up = (rank ^ bit) | (bit << 1)
    up = np.where(up >= n_ranks, rank ^ bit, up)
    up[0] = -1
    return up


def twin_parents(n_ranks: int) -> NDArray[np.int64]:
    """Return the parents in a second tree that has the leaves of the first inside: mirrored, or shifted if n is odd."""
    rank, up = np.arange(n_ranks), parents(n_ranks)
    if n_ranks % 2 == 0:
        mirrored = up[::-1]
        return np.where(mirrored < 0, -1, n_ranks - 1 - mirrored)
    moved = up[(rank - 1) % n_ranks]
    return np.where(moved < 0, -1, (moved + 1) % n_ranks)


def _rooted(n_ranks: int, root: int) -> NDArray[np.int64]:
    """Return the first tree with rotated ranks, so that `root` is the root."""
    moved = np.roll(parents(n_ranks), root)
    return np.where(moved < 0, -1, (moved + root) % n_ranks)


class Tree:
    """A tree and its slices, in chunks from `first` on."""

    def __init__(self, parent: NDArray[np.int64], first: int, slices: int) -> None:
        self.first, self.slices = first, slices
        self.child = np.flatnonzero(parent >= 0)
        self.parent = parent[self.child]
        height, depth = levels(parent)
        self.child_height, self.parent_depth = height[self.child], depth[self.parent]
        self.top, self.bottom = int(height.max()), int(depth.max())

    def up(self, number: int) -> Sends:
        """Return the sends up: a rank sends a slice in the round after its last child."""
        return self._sends(self.child, self.parent, number - self.child_height, True)

    def down(self, number: int) -> Sends:
        """Return the sends down: a rank sends a slice in the round after its arrival."""
        return self._sends(self.parent, self.child, number - self.parent_depth, False)

    def _sends(self, src: NDArray[np.int64], dst: NDArray[np.int64], tree: NDArray[np.int64], add: bool) -> Sends:
        now = (tree >= 0) & (tree < self.slices)
        return Sends.make(src[now], dst[now], self.first + tree[now], add=add)


def levels(parent: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the height of each rank above its lowest leaf, and its depth below the root."""
    height, depth = np.zeros(len(parent), np.int64), np.zeros(len(parent), np.int64)
    above, steps = parent.copy(), 0
    while (above >= 0).any():  # everybody tells its ancestors, one step further each time
        steps += 1
        np.maximum.at(height, above[above >= 0], steps)
        depth[above >= 0] = steps
        above = np.where(above >= 0, parent[above], -1)
    return height, depth
