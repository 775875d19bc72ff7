"""The result of a process group's call, and the conversion of weft's errors for PyTorch."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from weft.collectives.live.group import Group
from weft.collectives.live.message_queue import Receiving, Sending
from weft.errors import WeftError

Tensors = list[torch.Tensor]


@contextmanager
def converted_errors() -> Iterator[None]:
    """Convert weft's errors to those that PyTorch programs expect."""
    try:
        yield
    except WeftError as error:
        raise dist.DistBackendError(str(error)) from error


class Work(dist._Work):  # type: ignore[misc]
    """The result of a call: already done, or messages to wait for."""

    def __init__(self, group: Group, result: Tensors, message: Sending | Receiving | None = None) -> None:
        super().__init__()
        self._group, self._result, self._message = group, result, message
        self.at_end: Callable[[], object] = lambda: None
        if message is None:
            self._finish_stream()

    def _finish_stream(self) -> None:
        """Finish the stream, so that the result is visible to any other."""
        for device in {tensor.device for tensor in self._result if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Wait up to the group's timeout or this one; PyTorch passes 0 for none."""
        if self._message is not None:
            with converted_errors():
                self._group.message_queue.wait(self._message, timeout.total_seconds() if timeout else None)
            self.at_end()
            self.at_end = lambda: None
            self._finish_stream()
        return True

    def is_completed(self) -> bool:
        if self._message is not None and not self._message.is_done:
            with converted_errors():
                self._group.message_queue.poll()
        return self._message is None or self._message.is_done

    def is_success(self) -> bool:
        return self.is_completed()

    def result(self) -> Tensors:
        return self._result

    def _source_rank(self) -> int:
        """Return the source of a received message."""
        source = self._message.source if isinstance(self._message, Receiving) else None
        return -1 if source is None else source

    def get_future(self) -> torch.futures.Future[Tensors]:
        self.wait()
        devices = list({tensor.device for tensor in self._result if tensor.is_cuda})
        future: torch.futures.Future[Tensors] = torch.futures.Future(devices=devices)
        future.set_result(self._result)
        return future
