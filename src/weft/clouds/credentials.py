"""Secrets are read from files: a command line and a cloud's settings are seen by many."""

from __future__ import annotations

from pathlib import Path

from weft.errors import ConfigError
from weft.tenants.drivers.ufm_rest import UfmClient


def connect(
    url: str,
    *,
    token_file: Path | None = None,
    user: str | None = None,
    password_file: Path | None = None,
    ca_file: Path | None = None,
    timeout_s: float = 10.0,
) -> UfmClient:
    return UfmClient(
        url,
        token=read_secret(token_file),
        user=user,
        password=read_secret(password_file),
        ca_file=None if ca_file is None else str(ca_file),
        timeout_s=timeout_s,
    )


def read_secret(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the secret in {path} cannot be read: {getattr(error, 'strerror', error)}") from None
