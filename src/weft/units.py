"""Units: the only place where one turns into another.

Simulated time is integer picoseconds (`_ps`); link rates are Gbit/s (`_gbit_s`), what programs see is Gbyte/s
(`_gbyte_s`), sizes are bytes (`_bytes`), lengths metres (`_m`), money US dollars (`_usd`), power watts (`_w`).
"""

from __future__ import annotations

from weft.errors import ConfigError

_SIZE_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_COUNT_SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def gbyte_s(rate_gbit_s: float) -> float:
    """Gbyte/s of a rate in Gbit/s."""
    return rate_gbit_s / 8


def transfer_ps(size_bytes: int, rate_gbit_s: float) -> int:
    """Picoseconds that `size_bytes` take on a line of `rate_gbit_s`, rounded to the nearest."""
    return round(size_bytes * 8_000 / rate_gbit_s)


def parse_size_bytes(text: str) -> int:
    """Bytes of `8`, `4K`, `1M`, `8G` as perftest and nccl-tests write them: powers of 1024."""
    bare = text.strip().upper().removesuffix("B").removesuffix("I")
    number, suffix = (bare[:-1], bare[-1]) if bare and bare[-1] in "KMGT" else (bare, "")
    if not (number.isascii() and number.isdecimal()):
        raise ConfigError(f"size {text!r} is not a number of bytes: write 8, 4K, 1M or 8G")
    return int(number) * _SIZE_SUFFIXES[suffix]


def format_size_bytes(size_bytes: int) -> str:
    """As `parse_size_bytes` reads it, as short as it is true."""
    units = {suffix: unit for suffix, unit in _SIZE_SUFFIXES.items() if size_bytes and size_bytes % unit == 0}
    suffix = list(units or [""])[-1]
    return f"{size_bytes // _SIZE_SUFFIXES[suffix]}{suffix}"


def parse_count(what: str, text: str) -> float:
    """Of `500M`, `300B`, `15T`, `1.5T`: powers of 1000, as people count tokens and parameters."""
    bare = text.strip().upper()
    number, suffix = (bare[:-1], bare[-1]) if bare and bare[-1] in _COUNT_SUFFIXES else (bare, "")
    try:
        count = float(number) * _COUNT_SUFFIXES[suffix]
    except ValueError:
        count = 0.0
    if not 0 < count < float("inf"):
        raise ConfigError(f"{what} {text!r} are not a number above 0: write 500M, 300B or 15T")
    return count


def format_count(count: float) -> str:
    """As `parse_count` reads it: `15T`."""
    suffix = [name for name, unit in _COUNT_SUFFIXES.items() if count >= unit][-1] if count >= 1 else ""
    return f"{count / _COUNT_SUFFIXES[suffix]:.4g}{suffix}"


def parse_share(text: str) -> float:
    """Of `80%` or `0.8`; from 0 to 1."""
    bare = text.strip()
    try:
        share = float(bare.removesuffix("%")) / (100 if bare.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(f"share {text!r} is not from 0 to 1: write 80% or 0.8")
    return share


def format_gbit_s(rate_gbit_s: float) -> str:
    """`400`, `13.64`: as short as it is true."""
    return f"{rate_gbit_s:,.2f}".rstrip("0").rstrip(".")
