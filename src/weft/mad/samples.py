"""Implement PortSamplesControl and PortSamplesResult: the growth of counters in an interval chosen by a program.

    Set(PortSamplesControl)    wait SampleStart ticks, then count for SampleInterval ticks; refused while one runs
    Get(PortSamplesResult)     with the tag of the Set, and whether it is done

A fabric's counters have no history: a sample is the difference of their values at the first calls of `advance` after
its start and after its end. This agent calls it for each request.
"""

from __future__ import annotations

from weft.fabric.counters import Counter
from weft.mad.devices import NONE, Devices, Sample
from weft.wire.mad import Method, Status
from weft.wire.perf import PerfAttribute, PortSamplesControl, PortSamplesResult

DONE, WAITS, RUNS = 0, 1, 2
TICK_CODE = 0x80  # ticks of 2^n * 8 ns, n = 7 in the upper bits: 1.024 us
TICK_S = 1.024e-6
_DATA, _END = 64, 256
_COUNTERS = {  # CounterSelect
    0x0001: Counter.PORT_XMIT_DATA_WORDS,
    0x0002: Counter.PORT_RCV_DATA_WORDS,
    0x0003: Counter.PORT_XMIT_PKTS,
    0x0004: Counter.PORT_RCV_PKTS,
    0x0005: Counter.PORT_XMIT_WAIT,
}


def advance(devices: Devices, slot: int) -> Sample:
    """Bring the sample of a port up to date and return it."""
    sample = devices.samples.setdefault(slot, Sample())
    now_s = devices.clock()
    if sample.status == WAITS and now_s >= sample.starts_s:
        sample.before, sample.status = devices.counters(slot), RUNS
    if sample.status == RUNS and now_s >= sample.ends_s:
        sample.grown = [now - then for now, then in zip(devices.counters(slot), sample.before, strict=True)]
        sample.status = DONE
    return sample


def answer(devices: Devices, slot: int, mad: bytearray) -> int:
    """Fill in the answer; returns the status."""
    attribute = mad[16] << 8 | mad[17]
    node = devices.node_of[slot]
    result = attribute == PerfAttribute.PORT_SAMPLES_RESULT
    requested = slot if result else devices.port_slot(node, slot, mad[_DATA + 1])
    if result and mad[3] == Method.SET:
        return Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    if requested == NONE:
        return Status.INVALID_FIELD
    if result:
        requested = devices.sampled.get(node, slot)
    sample = advance(devices, requested)
    if mad[3] == Method.SET and sample.status == DONE:
        _start(devices, node, requested, sample, bytes(mad[_DATA : _DATA + PortSamplesControl.size]))
    raw = _result(sample) if result else _control(devices, requested, sample)
    mad[_DATA:_END] = raw.ljust(_END - _DATA, b"\0")
    return 0


def _start(devices: Devices, node: int, slot: int, sample: Sample, control: bytes) -> None:
    sample.control, sample.status, sample.grown = control, WAITS, []
    sample.starts_s = devices.clock() + TICK_S * PortSamplesControl.sample_start.get(control)
    sample.ends_s = sample.starts_s + TICK_S * PortSamplesControl.sample_interval.get(control)
    devices.sampled[node] = slot
    advance(devices, slot)


def _control(devices: Devices, slot: int, sample: Sample) -> bytes:
    requested = PortSamplesControl.unpack(sample.control) if sample.control else PortSamplesControl()
    return requested.replace(
        port_select=devices.number(slot),
        tick=TICK_CODE,
        counter_width=4,  # 32 bits
        counter_mask0=1,  # counters of any kind
        counter_masks1to9=0b001001001001,
        sample_mechanisms=1,
        sample_status=sample.status,
    ).raw


def _result(sample: Sample) -> bytes:
    control = sample.control or PortSamplesControl.blank
    values = []
    for select in PortSamplesControl.counter_select.get(control):
        column = _COUNTERS.get(select)
        values.append(min(sample.grown[column], 0xFFFFFFFF) if column is not None and sample.grown else 0)
    return PortSamplesResult.pack(
        tag=PortSamplesControl.tag.get(control), sample_status=sample.status, counter=tuple(values)
    )
