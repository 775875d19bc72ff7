"""The kernels that are linked into the library (`lib/kernels.c`), by the names that the linker gets."""

from __future__ import annotations

from weft.jit import object_code
from weft.verbs.carriers.roce.kernels import incoming, native, outgoing
from weft.verbs.hca import execute
from weft.verbs.shm import atomic, rings

_LINKED = {
    "lock": atomic.lock,
    "unlock": atomic.unlock,
    "load": atomic.load,
    "publish": atomic.publish,
    "free_from": atomic.free_from,
    "take": rings.take_at,
    "add": rings.add_at,
    "post": execute.post_at,
    "send_train": outgoing.send_train,
    "receive_burst": incoming.receive_burst,
}


def compiled() -> bytes:
    """Return an object file, for processors with the CRC instructions of this one."""
    kernels = {f"weft_kernel_{name}": kernel for name, kernel in _LINKED.items()}
    return object_code(kernels, features=native.CRC_FEATURES)
