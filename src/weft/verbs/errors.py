"""The exceptions of pyverbs, with its texts, to which weft adds the reason."""

from __future__ import annotations

import os


class PyverbsError(Exception):
    """The root of the others."""

    def __init__(self, msg: str, error_code: int = -1, reason: str = "") -> None:
        if error_code != -1:
            msg = f"{msg}. Errno: {error_code}, {os.strerror(error_code)}"
        super().__init__(f"{msg}: {reason}" if reason else msg)


class PyverbsRDMAError(PyverbsError):
    """The adapter refused; `error_code` is the errno that libibverbs would give."""

    def __init__(self, msg: str, error_code: int = -1, reason: str = "") -> None:
        super().__init__(msg, error_code, reason)
        self._error_code = error_code

    @property
    def error_code(self) -> int:
        return self._error_code


class PyverbsUserError(PyverbsError):
    """The caller gave something that cannot be meant, such as a device that is not there."""

    def __init__(self, msg: str) -> None:
        super().__init__(msg)
