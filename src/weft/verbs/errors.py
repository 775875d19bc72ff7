"""Define the exceptions of pyverbs, with its texts; weft adds the reason."""

from __future__ import annotations

import os


class PyverbsError(Exception):
    """The base class of the exceptions of pyverbs."""

    def __init__(self, msg: str, error_code: int = -1, reason: str = "") -> None:
        if error_code != -1:
            msg = f"{msg}. Errno: {error_code}, {os.strerror(error_code)}"
        super().__init__(f"{msg}: {reason}" if reason else msg)


class PyverbsRDMAError(PyverbsError):
    """An error of the adapter; `error_code` is the errno of libibverbs."""

    def __init__(self, msg: str, error_code: int = -1, reason: str = "") -> None:
        super().__init__(msg, error_code, reason)
        self._error_code = error_code

    @property
    def error_code(self) -> int:
        return self._error_code


class PyverbsUserError(PyverbsError):
    """An invalid argument, such as a device that does not exist."""

    def __init__(self, msg: str) -> None:
        super().__init__(msg)
