"""How the service is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from weft.errors import ConfigError
from weft.serve.clients import Network, is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits are of one caller."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: one that is free
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = (
        None  # clients need a certificate of it; its common name is a user, or they send a token
    )
    is_insecure: bool = False  # others than this machine are served without TLS
    rate_per_s: float = 1000  # requests; twice as many at once
    failures_per_s: float = 5  # wrong tokens from one address, wrong passwords of one user from there
    trusted_proxies: tuple[Network, ...] = ()  # whose X-Forwarded-For and X-Forwarded-Host are believed
    most_at_once: int = 250  # requests
    most_held_bytes: int = 16 << 20  # of the bodies of those
    most_body_bytes: int = 4 << 20
    patience_s: float = 60  # for a request to arrive, and for the fabric to take a change
    # UFM's plugins, on its own machine, say who they are and prove nothing.
    trusts_remote_user: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port must be from 0 to 65535, got {self.port}; 0 takes a free one")
        if self.rate_per_s <= 0:
            raise ConfigError(f"--rate {self.rate_per_s:g} lets nobody in: give requests per second, 1000 say")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("--tls-cert and --tls-key go together: the certificate is of no use without its key")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ConfigError(
                "--tls-client-ca needs --tls-cert and --tls-key: without TLS no client shows a certificate"
            )
        if not (is_loopback(self.host) or self.tls_cert or self.is_insecure):
            raise ConfigError(
                f"--host {self.host} would send tokens over the network in the clear: give --tls-cert and --tls-key, "
                "or --insecure if something before it does TLS"
            )
