"""Settings of the service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from weft.errors import ConfigError
from weft.serve.clients import Network, is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the service. Limits apply to each caller."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: a free one
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None  # requires client certificates; the common name is a user, unless a token is sent
    is_insecure: bool = False  # allow other machines without TLS
    rate_per_s: float = 1000  # requests; bursts of twice as many
    failures_per_s: float = 5  # wrong tokens per address, wrong passwords per user and address
    trusted_proxies: tuple[Network, ...] = ()  # proxies with trusted X-Forwarded-For and X-Forwarded-Host
    most_at_once: int = 250  # concurrent requests
    most_held_bytes: int = 16 << 20  # total size of their bodies
    most_body_bytes: int = 4 << 20
    timeout_s: float = 60  # to receive a request, and to apply a change to the fabric
    # UFM's plugins on the same machine send a user name (X-Remote-User) without credentials.
    trusts_remote_user: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port must be from 0 to 65535, got {self.port}; 0 uses a free one")
        if self.rate_per_s <= 0:
            raise ConfigError(f"--rate must be > 0 requests per second, got {self.rate_per_s:g}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("give --tls-cert and --tls-key together")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ConfigError("--tls-client-ca needs --tls-cert and --tls-key")
        if not (is_loopback(self.host) or self.tls_cert or self.is_insecure):
            raise ConfigError(
                f"--host {self.host} would send tokens unencrypted over the network: give --tls-cert and --tls-key, "
                "or --insecure if a proxy handles TLS"
            )
