"""Words of partitions.conf, as C reads them."""

from __future__ import annotations

import re

BLANKS = " \t\n"
ULONG = 1 << 64
_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")


def split(word: str) -> tuple[str, str | None]:
    """Split `name=value` and strip blanks; the value is None without `=`."""
    name, equals, value = word.partition("=")
    return name.strip(BLANKS), value.strip(BLANKS) if equals else None


def abbreviated(word: str, keywords: tuple[str, ...]) -> str | None:
    """Return the first keyword that starts with the word."""
    return next((keyword for keyword in keywords if keyword.startswith(word)), None)


def strtoul(text: str) -> tuple[int, str]:
    """Read a number as C does with base 0, and return it with the rest; 0 and the whole text if there is none."""
    match = _NUMBER.match(text)
    if match is None:
        return 0, text
    digits = match[2]
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    number = min(int(digits, base), ULONG - 1)
    return (-number % ULONG if match[1] == "-" else number), text[match.end() :]
