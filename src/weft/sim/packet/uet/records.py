"""The records of packet delivery contexts, of their packets and of the queues of control packets."""

from __future__ import annotations

import enum

import numpy as np

ENTROPY_BITS = 7
ENTROPIES = 1 << ENTROPY_BITS  # values of a packet's entropy, by which switches choose its path
SACK_PACKETS = 63  # in a selective acknowledgement; 64 in the specification, of which one bit is the sign here
RECYCLED = 8  # entropies that REPS keeps
QUANTUM_BYTES = 256  # credits are multiples


class Entropy(enum.IntEnum):
    """The way in which a sender chooses the entropy of each packet."""

    NONE = 0  # one entropy for all packets of a context
    OBLIVIOUS = 1  # all in turn, in another order each round
    BITMAP = 2  # in turn, without those of marked, trimmed and lost packets
    REPS = 3  # the entropies that ACKs bring back without a mark, or a random one
    MIXED = 4  # the same, or else by the bitmap


class Feedback(enum.IntEnum):
    """The news about a packet's path: the number of rounds in which the bitmap skips its entropy."""

    GOOD = 0
    MARKED = 1
    TRIMMED = 4
    LOST = 15


class Cause(enum.IntEnum):
    """The cause of a call of the congestion control: `cause` of a queue pair."""

    ACKED = 0
    TRIMMED = 1
    TRIMMED_LAST_HOP = 2  # in front of the receiver
    LOST = 3  # no acknowledgement within the timeout


class SlotState(enum.IntEnum):
    """The state of a packet at its sender."""

    DONE = 0  # acknowledged, or not sent yet
    FLYING = 1
    LOST = 2  # to be sent again


ACK_REQUEST, LAST_HOP, PROBED = 1, 2, 4  # bits of a note

NOTE = np.dtype(  # the transport's part of a packet
    [
        ("received_bytes", np.int64),  # in ACKs and NACKs: by the context so far
        ("bitmap", np.int64),  # packets from `base_psn` on that have arrived
        ("pull_bytes", np.int64),  # credits: wanted, in data, or granted, in PULLs
        ("cumulative_psn", np.int32),  # all earlier packets have arrived
        ("base_psn", np.int32),
        ("out_of_order", np.int32),  # packets that have arrived after a missing one
        ("bits", np.int32),
    ],
    align=True,
)
SLOT = np.dtype(  # a packet number in the window of a context
    [
        ("sent_ps", np.int64),
        ("message", np.int32),
        ("entropy", np.int16),
        ("state", np.int8),
        ("again", np.int8),  # retransmissions
    ],
    align=True,
)
PDC = np.dtype(
    [
        ("first", np.int64),  # its first slot
        ("mask", np.int32),  # slots - 1
        # the sender
        ("next_psn", np.int32),  # number for the next new packet
        ("acked_psn", np.int32),  # all earlier packets have arrived
        ("lost", np.int32),  # packets to be sent again
        ("lost_psn", np.int32),  # no earlier one is to be sent again
        ("recover_psn", np.int32),  # loss recovery ends with the arrival of all earlier ones
        ("resent_psn", np.int32),  # no earlier one is sent again in this recovery
        ("flight_bytes", np.int64),
        ("received_bytes", np.int64),  # that the receiver has confirmed
        ("credit_bytes", np.int64),
        ("granted_bytes", np.int64),  # by the receiver so far
        ("probe_ps", np.int64),  # when the next probe is due
        ("probed_ps", np.int64),  # when the last one left
        ("speculates", np.int8),  # sends without credits, before the first answer
        ("recovers", np.int8),
        ("probe_timer", np.int8),  # a PROBE is on the agenda
        # its choice of entropies
        ("turn", np.int16),
        ("order", np.int16),  # changes each round: the entropy is `turn` ^ `order`
        ("kept", np.int16),  # REPS: entropies in its ring so far, at most RECYCLED
        ("fresh", np.int16),  # those that were not used
        ("head", np.int32),  # place of the next one in its ring
        ("frozen_at", np.int16),  # REPS after a timeout: place of the next entropy to use again
        ("explore", np.int16),  # packets that get a random entropy
        ("frozen_ps", np.int64),  # until when it uses old entropies again; 0: not
        # the receiver
        ("expected_psn", np.int32),
        ("out_of_order", np.int32),
        ("accepted_bytes", np.int64),  # since the last ACK
        ("arrived_bytes", np.int64),
        ("wanted_bytes", np.int64),  # credits that the sender has asked for so far
        ("given_bytes", np.int64),  # credits given so far
        ("ack_wanted", np.int8),  # when no packet is missing
        ("pull", np.int8),  # its queue for credits: `Pull`
        ("next_pull", np.int32),  # in that queue
        ("last_message", np.int32),  # message with the latest packet
    ],
    align=True,
)


class Pull(enum.IntEnum):
    """The queue of a context for credits of its receiver."""

    NONE = 0
    ACTIVE = 1  # its sender has asked for more
    IDLE = 2  # it gets credits unasked when no other one wants them


PULLER = np.dtype(  # a receiving adapter that gives credits
    [
        ("active", np.int32),  # first context of each queue
        ("active_last", np.int32),
        ("idle", np.int32),
        ("idle_last", np.int32),
        ("busy", np.int8),  # a PULL is on the agenda
        ("line_ps_per_kib", np.int64),  # time for 1 KiB at the rate of the port
    ],
    align=True,
)
EXPRESS = np.dtype([("tail", np.int32), ("bytes", np.int32)], align=True)  # control packets at the head of a queue
