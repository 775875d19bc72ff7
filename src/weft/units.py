"""Units: the only module that converts between them.

Simulated time is integer picoseconds (`_ps`); link rates are Gbit/s (`_gbit_s`), rates that programs see are Gbyte/s
(`_gbyte_s`), sizes are bytes (`_bytes`), lengths metres (`_m`), money US dollars (`_usd`), power watts (`_w`).
"""

from __future__ import annotations

from weft.errors import ConfigError

_SIZE_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_COUNT_SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def gbyte_s(rate_gbit_s: float) -> float:
    """Convert Gbit/s to Gbyte/s."""
    return rate_gbit_s / 8


def transfer_ps(size_bytes: int, rate_gbit_s: float) -> int:
    """Return the serialisation time of `size_bytes` at `rate_gbit_s`, rounded to picoseconds."""
    return round(size_bytes * 8_000 / rate_gbit_s)


def parse_size_bytes(text: str) -> int:
    """Parse `8`, `4K`, `1M` or `8G` as perftest and nccl-tests write sizes: powers of 1024."""
    bare = text.strip().upper().removesuffix("B").removesuffix("I")
    number, suffix = (bare[:-1], bare[-1]) if bare and bare[-1] in "KMGT" else (bare, "")
    if not (number.isascii() and number.isdecimal()):
        raise ConfigError(f"size {text!r} is not a number of bytes: write 8, 4K, 1M or 8G")
    return int(number) * _SIZE_SUFFIXES[suffix]


def format_size_bytes(size_bytes: int) -> str:
    """Format a size exactly and as short as possible, as `parse_size_bytes` reads it."""
    units = {suffix: unit for suffix, unit in _SIZE_SUFFIXES.items() if size_bytes and size_bytes % unit == 0}
    suffix = list(units or [""])[-1]
    return f"{size_bytes // _SIZE_SUFFIXES[suffix]}{suffix}"


def parse_count(what: str, text: str) -> float:
    """Parse `500M`, `300B`, `15T` or `1.5T`: powers of 1000, as tokens and parameters are counted."""
    bare = text.strip().upper()
    number, suffix = (bare[:-1], bare[-1]) if bare and bare[-1] in _COUNT_SUFFIXES else (bare, "")
    try:
        count = float(number) * _COUNT_SUFFIXES[suffix]
    except ValueError:
        count = 0.0
    if not 0 < count < float("inf"):
        raise ConfigError(f"{what} must be a number above 0, got {text!r}: write 500M, 300B or 15T")
    return count


def format_count(count: float) -> str:
    """Format a count as `parse_count` reads it: `15T`."""
    suffix = [name for name, unit in _COUNT_SUFFIXES.items() if count >= unit][-1] if count >= 1 else ""
    return f"{count / _COUNT_SUFFIXES[suffix]:.4g}{suffix}"


def format_items(count: int, noun: str) -> str:
    """Format a number of things: `1 port`, `1,024 switches`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "es" if noun.endswith("ch") else "s")


def parse_seconds(flag: str, text: str) -> float:
    """Return the seconds of `2s` or `30ms`, given as a flag."""
    bare, scale = (text.removesuffix("ms"), 1e-3) if text.endswith("ms") else (text.removesuffix("s"), 1.0)
    try:
        seconds = float(bare) * scale
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"{flag} must be a time above 0, such as 2s or 30ms, got {text!r}")
    return seconds


def parse_share(text: str) -> float:
    """Parse a share from 0 to 1, written `80%` or `0.8`."""
    bare = text.strip()
    try:
        share = float(bare.removesuffix("%")) / (100 if bare.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(f"share must be 0 to 1, got {text!r}: write 80% or 0.8")
    return share


def format_gbit_s(rate_gbit_s: float) -> str:
    """Format a rate with at most two decimals: `400`, `13.64`."""
    return f"{rate_gbit_s:,.2f}".rstrip("0").rstrip(".")
