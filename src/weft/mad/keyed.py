"""A carrier for subnets whose ports have an M_Key: its SMPs carry the key, so that protected ports answer.

    carrier = KeyedCarrier(IbsimCarrier("h1", sockname), KeyFile(path))

The key is read again whenever its file changes, so a program that runs on learns of a key that is made later. SMInfo
goes without it: it is answered by a program at the other end, which may be anybody's.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from weft.errors import ConfigError
from weft.mad.carrier import HERE, RETRIES, SMP_CLASSES, TIMEOUT_MS, Address, Answers, Carrier, Lids, Mads
from weft.wire.fields import Buffer
from weft.wire.smp import Smp, SmpAttribute

_KEY = slice(24, 32)  # in an SMP
_ATTRIBUTE = slice(16, 18)
_SM_INFO = SmpAttribute.SM_INFO.to_bytes(2, "big")
_KEY_BITS = 64


class KeyFile:
    """An M_Key in a file that its owner alone can read: `0x` and 16 digits."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[int, int] = (-1, 0)  # when the file was changed, and its key

    def __call__(self) -> int:
        """Return the key; 0 if there is no file."""
        try:
            changed_ns = self.path.stat().st_mtime_ns
            if changed_ns != self._read[0]:
                self._read = changed_ns, int(self.path.read_text(), 16)
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            raise ConfigError(f"the M_Key in {self.path} cannot be read: {error}; run as the file's owner") from None
        return self._read[1]

    def make(self) -> int:
        """Return the key; create the file with a new one if it does not exist."""
        if key := self():
            return key
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(f"{secrets.randbits(_KEY_BITS) or 1:#018x}\n")
            with suppress(FileExistsError):  # another manager was faster, and its key counts
                os.link(temporary, self.path)
        except OSError as error:
            raise ConfigError(f"the M_Key cannot be kept in {self.path}: {error.strerror}") from None
        finally:
            temporary.unlink(missing_ok=True)
        return self()


class KeyedCarrier:
    """A carrier that adds the M_Key to SMPs; `m_key` returns the current key, 0 for none."""

    def __init__(self, carrier: Carrier, m_key: Callable[[], int]) -> None:
        self._carrier, self._m_key = carrier, m_key
        self.poll, self.arrivals, self.watch = carrier.poll, carrier.arrivals, carrier.watch
        self.host: str = getattr(carrier, "host", "")

    def send(self, mad: Buffer, to: Address = HERE, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES) -> int:
        return self._carrier.send(self._with_key(mad), to, timeout_ms=timeout_ms, retries=retries)

    def exchange(
        self, mads: Mads, to: Lids | None = None, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES
    ) -> Answers:
        key = self._m_key()
        if key and len(mads):
            rows = np.isin(mads[:, 1], list(SMP_CLASSES)) & ~mads[:, _KEY].any(axis=1)
            rows &= (mads[:, _ATTRIBUTE] != np.frombuffer(_SM_INFO, np.uint8)).any(axis=1)
            mads = mads.copy()
            mads[rows, _KEY] = np.frombuffer(key.to_bytes(8, "big"), np.uint8)
        return self._carrier.exchange(mads, to, timeout_ms=timeout_ms, retries=retries)

    def _with_key(self, mad: Buffer) -> Buffer:
        raw = bytes(mad)
        if raw[1] not in SMP_CLASSES or any(raw[_KEY]) or raw[_ATTRIBUTE] == _SM_INFO or not (key := self._m_key()):
            return mad
        keyed = bytearray(raw)
        Smp.m_key.set(keyed, key)
        return bytes(keyed)

    def post(self, mad: Buffer, to: Address = HERE) -> None:
        self._carrier.post(mad, to)

    def unsent_bytes(self) -> int:
        return self._carrier.unsent_bytes()

    def register(self, mgmt_class: int, methods: Iterable[int], *, class_version: int = 1, oui: int = 0) -> None:
        self._carrier.register(mgmt_class, methods, class_version=class_version, oui=oui)

    def set_is_sm(self, on: bool) -> None:
        self._carrier.set_is_sm(on)

    def close(self) -> None:
        self._carrier.close()
