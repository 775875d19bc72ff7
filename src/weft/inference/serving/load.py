"""The load of a service: when requests arrive, and how long their prompts and answers are.

poisson(rate=50, seconds=600, prompt=Lengths(1024), output=Lengths(64, 512), seed=1)
bursts(rate=50, seconds=600, ...)         the same mean rate, in bursts (gamma-distributed gaps)
closed_loop(users=256, requests=5000, ...)  each user sends the next request when the answer is complete
offline(requests=5000, ...)                all at once, as MLPerf's Offline scenario
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError

_MOST_REQUESTS = 50_000_000  # of a run: about 10 GB of memory
BURSTINESS = 0.25  # shape of the gaps in bursts: their coefficient of variation is 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A prefix that several prompts share, such as a system prompt."""

    tokens: int
    count: int = 1  # different prefixes, each as frequent


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of numbers of tokens: fixed, or uniform in a range."""

    low: int
    high: int = 0  # 0: fixed

    def __post_init__(self) -> None:
        if self.low < 1 or (self.high and self.high < self.low):
            raise ConfigError(f"lengths {self} must be 1 or more, and a range must ascend: 1024 or 64..512")

    def __str__(self) -> str:
        return f"{self.low}..{self.high}" if self.high else str(self.low)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `1024` or `64..512`."""
        low, dots, high = text.partition("..")
        try:
            return cls(int(low), int(high) if dots else 0)
        except ValueError:
            raise ConfigError(f"lengths {text!r} must be a number of tokens or a range: 1024 or 64..512") from None

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int32]:
        """Return so many random lengths."""
        if not self.high:
            return np.full(count, self.low, np.int32)
        return rng.integers(self.low, self.high, count, dtype=np.int32, endpoint=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Load:
    """The requests of a run in the order of their arrival."""

    arrival_s: NDArray[np.float64]
    prompt: NDArray[np.int32]  # tokens
    output: NDArray[np.int32]
    users: int = 0  # closed loop: this many requests at a time; the others arrive when one ends
    think_s: float = 0.0
    description: str = ""
    block_tokens: int = 0  # tokens of a prefix block
    blocks: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))  # [request] full blocks
    hashes: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))  # blocks of all requests

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def mean_tokens(self) -> float:
        """Return the mean tokens of a prompt and its answer."""
        return float((self.prompt.astype(np.int64) + self.output).mean())

    def without_longer(self, most: int) -> Load:
        """Return the load without requests of more tokens than `most`."""
        keep = self.prompt.astype(np.int64) + self.output <= most
        if keep.all():
            return self
        if not keep.any():
            raise ConfigError(f"all {len(self):,} requests are longer than --max-model-len {most:,}")
        hashes = self.hashes[np.repeat(keep, self.blocks)] if len(self.blocks) else self.hashes
        return replace(
            self,
            arrival_s=self.arrival_s[keep],
            prompt=self.prompt[keep],
            output=self.output[keep],
            blocks=self.blocks[keep] if len(self.blocks) else self.blocks,
            hashes=hashes,
        )


def poisson(*, rate: float, seconds: float, prompt: Lengths, output: Lengths, seed: int, **more: Prefix | None) -> Load:
    """Return requests with independent arrivals."""
    return _open(rate, seconds, prompt, output, seed, 1.0, f"{rate:g} requests/s (Poisson)", **more)


def bursts(
    *,
    rate: float,
    seconds: float,
    prompt: Lengths,
    output: Lengths,
    seed: int,
    burstiness: float = BURSTINESS,
    **more: Prefix | None,
) -> Load:
    """Return requests with gamma-distributed gaps; a burstiness of 1 is Poisson, less has more bursts (as in vLLM)."""
    if not 0 < burstiness < np.inf:
        raise ConfigError(f"--burstiness must be above 0, got {burstiness:g}")
    label = f"{rate:g} requests/s in bursts (burstiness {burstiness:g})"
    return _open(rate, seconds, prompt, output, seed, burstiness, label, **more)


def offline(*, requests: int, prompt: Lengths, output: Lengths, seed: int, prefix: Prefix | None = None) -> Load:
    """Return requests that all arrive at once."""
    rng = np.random.default_rng(seed)
    return _with_lengths(rng, np.zeros(_check(requests)), prompt, output, prefix, f"{requests:,} requests at once")


def closed_loop(
    *,
    users: int,
    requests: int,
    prompt: Lengths,
    output: Lengths,
    seed: int,
    think_s: float = 0.0,
    prefix: Prefix | None = None,
) -> Load:
    """Return the requests of users who send the next one when they have read the answer."""
    if not 1 <= users <= requests:
        raise ConfigError(f"{users} users need a request each: --requests must be at least --concurrency")
    rng = np.random.default_rng(seed)
    arrival_s = np.where(np.arange(_check(requests)) < users, 0.0, np.inf)
    load = _with_lengths(rng, arrival_s, prompt, output, prefix, f"{users:,} user{'s' * (users > 1)}")
    return replace(load, users=users, think_s=think_s)


def _check(requests: int) -> int:
    if requests < 1:
        raise ConfigError(f"--requests must be 1 or more, got {requests}")
    return requests


def _open(
    rate: float,
    seconds: float,
    prompt: Lengths,
    output: Lengths,
    seed: int,
    burstiness: float,
    label: str,
    prefix: Prefix | None = None,
) -> Load:
    if not (0 < rate < np.inf and 0 < seconds < np.inf):
        raise ConfigError(f"--rate and --seconds must be above 0, got {rate:g} requests/s for {seconds:g} s")
    rng = np.random.default_rng(seed)
    if rate * seconds > _MOST_REQUESTS:
        raise ConfigError(
            f"{rate:g} requests/s for {seconds:g} s are more than {_MOST_REQUESTS:,} requests: give a shorter --seconds"
        )
    count = int(rate * seconds * 1.1 + 10 * np.sqrt(rate * seconds / burstiness) + 10)
    arrival_s = np.cumsum(rng.gamma(burstiness, 1 / (rate * burstiness), count))
    arrival_s = arrival_s[arrival_s <= seconds]
    if not len(arrival_s):
        raise ConfigError(f"no request arrives within {seconds:g} s at {rate:g} requests/s: give a longer --seconds")
    return _with_lengths(rng, arrival_s, prompt, output, prefix, f"{label} for {seconds:g} s")


def _with_lengths(
    rng: np.random.Generator,
    arrival_s: NDArray[np.float64],
    prompt: Lengths,
    output: Lengths,
    prefix: Prefix | None,
    label: str,
) -> Load:
    count = len(arrival_s)
    prompts, outputs = prompt.draw(rng, count), output.draw(rng, count)
    description = f"{label}, prompts of {prompt} and answers of {output} tokens"
    load = Load(arrival_s=arrival_s, prompt=prompts, output=outputs, description=description)
    if prefix is None:
        return load
    if not 1 <= prefix.tokens < prompts.min() or prefix.count < 1:
        raise ConfigError(
            f"--shared-prefix {prefix.tokens} must be below the shortest prompt, {prompts.min():,} tokens, and "
            f"--prefixes {prefix.count} 1 or more"
        )
    return replace(
        load,
        description=f"{description}, {prefix.count:,} shared prefixes of {prefix.tokens:,} tokens",
        block_tokens=prefix.tokens,
        blocks=np.ones(count, np.int32),
        hashes=rng.integers(0, prefix.count, count, dtype=np.int32),
    )
