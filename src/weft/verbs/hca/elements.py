"""Addresses of the bytes of a request at both ends, and copies between them: parts of `execute`.

An element of a request, or a place at the other end, is found by a key in the regions that adapters show each other
(`regions`).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-warn-return-any
from __future__ import annotations

from weft.jit import part
from weft.verbs import enums as e
from weft.verbs.hca.copying import copy
from weft.verbs.shm import layout
from weft.verbs.shm.atomic import view
from weft.verbs.shm.rings import queue_pair

LOCAL_WRITE = int(e.IBV_ACCESS_LOCAL_WRITE)
_INLINE = int(e.IBV_SEND_INLINE)
_REQUEST_BYTES, _SGE_BYTES, _WORD_BYTES = layout.SendRequest.size, layout.SgeRecord.size, layout.Word.size

_region_at = part(layout.region_at)
sge, _word, _region = view(layout.SgeRecord), view(layout.Word), view(layout.RegionRecord)


@part
def _opened(memory: int, domain: int, qp: int, key: int, va: int, length: int, access: int, local: bool) -> int:
    """Return the address of bytes in the process of the key, with ON_GPU for a GPU; -1 if the key gives no access."""
    region = _region(memory + _region_at(key))
    if region.key != key or region.domain != domain:
        return -1
    kind = region.kind & layout.KIND_MASK
    if kind == 0 or (local and kind != layout.REGION) or region.access & access != access:
        return -1
    only = region.qp_num
    offset, size = va - region.base, region.length
    if (only != 0 and only != qp) or offset < 0 or offset > size or length > size - offset:  # sums could turn over
        return -1
    return region.address + offset + (layout.ON_GPU if region.kind != kind else 0)


@part
def opened_there(path, domain: int, qp: int, key: int, va: int, length: int, access: int, local: bool) -> int:
    """Return the address of bytes at the peer, as `_opened`."""
    path.far_reference = _region(path.far + _region_at(key)).kind & ~layout.KIND_MASK
    return _opened(path.far, domain, qp, key, va, length, access, local)


@part
def element(path, n: int):
    """Return an element of the request."""
    return sge(path.request + _REQUEST_BYTES + n * _SGE_BYTES)


@part
def found(path, n: int):
    """Return the address of an element in this process."""
    return _word(path.found + n * _WORD_BYTES)


@part
def find_elements(path, request, write: bool) -> int:
    """Find all elements of the request; return their number of bytes, or -1."""
    size, is_inline = 0, request.flags & _INLINE != 0
    if request.num_sge > path.max_sge or (is_inline and write):
        return -1
    domain = queue_pair(path.own_qp).domain
    access = LOCAL_WRITE if write else 0
    path.own_is_on_gpu = 0
    for n in range(request.num_sge):
        one = element(path, n)
        address, length = one.address, one.length
        if length and not is_inline:
            address = _opened(path.own, domain, 0, one.lkey, address, length, access, True)
            if address == -1:
                return -1
            path.own_is_on_gpu |= address & layout.ON_GPU
        found(path, n).value = address
        size += length
    return -1 if is_inline and size > path.max_inline else size


@part
def copy_all(path, far: int, size: int, skipped: int, outward: bool) -> bool:
    """Copy between bytes `skipped` to `skipped + size` of the elements here and one contiguous range at the peer."""
    n = 0
    while size > 0:
        length = element(path, n).length
        if skipped < length:
            here = min(length - skipped, size)
            if not copy(path, found(path, n).value + skipped, far, here, outward):
                return False
            far, size, skipped = far + here, size - here, 0
        else:
            skipped -= length
        n += 1
    return True
