"""The input of a step: sequences are read from storage and prepared by processes, beside the step before.

    loading = loading_of(layout, transformer)
    loading.read_s, loading.prepare_s         time for the sequences of a step
    loading.exposed_s(step.step_s)            the part for which the GPUs wait

Storage reads for all GPUs at once, the processes of a copy of the model prepare its sequences. Of tokens a sequence
has a few kilobytes, and the step hides both; images, video and audio take megabytes and tens of milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from weft.training.parallel import Layout
from weft.training.storage import constants
from weft.training.transformer import Transformer

_SHORT_VOCABULARY, _SHORT_BYTES, _LONG_BYTES = 65_500, 2, 4  # of a token in the files of Megatron's datasets


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The input of a step, of all GPUs together."""

    total_bytes: float
    read_s: float
    prepare_s: float
    workers: int  # processes for each copy of the model; 0: its GPUs wait for their own

    @property
    def seconds(self) -> float:
        """Return the time in which the input of a step is ready: processes read some sequences and prepare others."""
        return max(self.read_s, self.prepare_s) if self.workers else self.read_s + self.prepare_s

    def exposed_s(self, step_s: float) -> float:
        """Return the time for which a step of `step_s` waits for its input."""
        return max(0.0, self.seconds - step_s) if self.workers else self.seconds


def loading_of(layout: Layout, transformer: Transformer) -> Loading:
    """Return the input of a step.

    As in Megatron, the first and the last stage of a pipeline and each GPU of a context group read whole sequences.
    """
    token_bytes = _SHORT_BYTES if transformer.vocab < _SHORT_VOCABULARY else _LONG_BYTES
    readers = layout.cp * min(layout.pp, 2)
    total_bytes = layout.global_batch * readers * (layout.sample_bytes or layout.seq * token_bytes)
    figures = constants()
    boxes = ceil(layout.gpus / figures["loader"]["gpus_for_each_appliance"])
    gbyte_s = layout.storage_gbyte_s or boxes * figures["appliance"]["read_gbyte_s"]
    sample_ms = layout.sample_ms or figures["loader"]["tokens_ms"]
    return Loading(
        total_bytes=total_bytes,
        read_s=total_bytes / gbyte_s / 1e9,
        prepare_s=layout.global_batch / layout.dp * sample_ms / 1000 / max(layout.loader_workers, 1),
        workers=layout.loader_workers,
    )
