"""Write the C header: the numbers of verbs.h, the records of shared memory, and the operations."""

from __future__ import annotations

from weft.verbs import enums, hardware
from weft.verbs.c import datagrams, devices, operations, pairs
from weft.verbs.c.addresses import Address
from weft.verbs.c.calls import numbered
from weft.verbs.c.start import EntryPoint
from weft.verbs.carriers.lab.connection import FRAME_IN_C, Kind
from weft.verbs.carriers.processes import device
from weft.verbs.carriers.roce.device import GUID
from weft.verbs.enums import cm
from weft.verbs.hca.segment import Service
from weft.verbs.shm import layout, native, requests
from weft.verbs.shm.record import Record, write_header
from weft.wire.crc import CRC16_TABLE

_SHARED = (
    layout.Header,
    layout.Copy,
    layout.QueuePairRecord,
    layout.ReceiveQueueRecord,
    layout.CompletionQueueRecord,
    layout.CompletionRecord,
    layout.SendRequest,
    layout.ReceiveRequest,
    layout.SgeRecord,
    layout.PathRecord,
    native.Linked,
    devices.AsyncEvent,
    EntryPoint,
)
_LISTS = {  # fields of a record that are copied one by one from or to a structure of verbs.h
    "DEVICE": devices.DEVICE_NUMBERS,
    "PORT": devices.PORT_NUMBERS,
    "CAP": pairs.CAP_NUMBERS,
    "QP": pairs.QP_NUMBERS,
}
_LISTING = {  # devices that C lists without Python: the variables that select them, and questions to labs
    "DEVICE_NAME": f'"{device.NAME}"',
    "DEVICE_GUID": f"{device.Mlx5Device.guid:#x}ull",
    "LAB": f'"{hardware.LAB}"',
    "HOST": f'"{hardware.HOST}"',
    "ROCE": f'"{hardware.ROCE}"',
    "ROCE_GUID": f"{GUID:#x}ull",
    "QUESTION": int(Kind.QUESTION),
    "ANSWER": int(Kind.ANSWER),
}
_PLACES = {
    "SLOW": requests.SLOW,
    "UC": int(Service.UC),
    "DATAGRAM_PATHS": datagrams.PLACES,
    "COPY": layout.COPY,
    "RING": layout.RING,
    "ARMED_FOR_ALL": layout.ARMED_FOR_ALL,
    "ARMED_FOR_SOLICITED": layout.ARMED_FOR_SOLICITED,
    "COMPLETION_BYTES": layout.COMPLETION_BYTES,
    "SGE_MAX": layout.SGE_MAX,
    "QUEUE_PAIRS": layout.QUEUE_PAIRS,
    "QUEUE_PAIRS_MAX": layout.QUEUE_PAIRS_MAX,
    "QUEUE_PAIR_BYTES": layout.QUEUE_PAIR_BYTES,
    "CRC16_TABLE": "{" + ", ".join(map(str, CRC16_TABLE)) + "}",
}


def text() -> str:
    """Return the text of weft_numbers.h."""
    assert operations.SUBJECTS
    asked = [one for one, _ in numbered()]
    records: tuple[type[Record], ...] = (*_SHARED, Address, *asked)
    both = {**vars(enums), **vars(cm)}
    names = {name: int(value) for name, value in both.items() if name.startswith(("IBV_", "RDMA_", "RAI_"))}
    lines = [f"#define {name} {_number(value)}" for name, value in names.items()]
    lines += [f"#define WEFT_{name} {value}" for name, value in (_PLACES | _LISTING).items()]
    lines += [f"#define WEFT_{one.__name__} {number}" for number, one in enumerate(asked)]
    known = "".join(f"{function.__module__} {one.__name__}\\n" for one, function in numbered())
    lines.append(f'#define WEFT_OPERATIONS "{known}"')
    for name, fields in _LISTS.items():
        lines.append(f"#define WEFT_{name}_NUMBERS(X) " + " ".join(f"X({field})" for field in fields))
    return write_header(*records) + FRAME_IN_C + "\n".join(lines) + "\n"


def _number(value: int) -> str:
    return f"{value}" if -(1 << 31) <= value < 1 << 31 else f"{value:#x}ull"
