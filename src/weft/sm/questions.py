"""Requests that the manager has sent, and the handlers of their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weft.mad.carrier import Carrier
from weft.sm.sminfo.sm_info import Action, Question


class Questions:
    """A set of open requests: `ask` sends without waiting, `poll` calls the handler of each answer or timeout."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._handlers: dict[int, Callable[[bytes | None], Action]] = {}  # by token

    def ask(self, question: Question) -> None:
        if question.heard is None:
            self._carrier.post(question.mad, question.to)
            return
        token = self._carrier.send(question.mad, question.to, timeout_ms=question.timeout_ms, retries=question.retries)
        self._handlers[token] = question.heard

    def poll(self, wait_s: float) -> Iterator[Action]:
        """Wait for answers at most so long, and yield the action that each of them calls for."""
        for token, answer in self._carrier.poll(wait_s):
            handler = self._handlers.pop(token, None)
            if handler is not None:
                yield handler(answer)
