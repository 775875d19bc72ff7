"""A part of a copy from the memory of another process, for a thread; and number types."""

from __future__ import annotations

import numpy as np

from weft.verbs.shm.record import Record, u64

PUT, NAMES = 0, ("f4", "f8", "i4", "i8", "i2", "i1")
KINDS = {np.dtype(name): kind for kind, name in enumerate(NAMES, 1)}
KINDS |= {np.dtype(f"u{size}"): KINDS[np.dtype(f"i{size}")] for size in (1, 2, 4, 8)}  # sums have the same bits
BLOCK_BYTES = 1 << 18  # fits the cache of a core, with as many bytes to add it to
OUT, CALLED, IDLE, BUSY = range(4)


class Job(Record):
    """A part of a copy. `vector`, `far_vector`: as process_vm_readv takes them."""

    state: u64
    process: u64
    far: u64
    own: u64
    length: u64
    kind: u64
    block: u64  # address of the block through which summands pass
    has_failed: u64
    vector: u64
    vector_length: u64
    far_vector: u64
    far_vector_length: u64
