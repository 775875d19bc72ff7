"""Arguments of many commands; `-` for a file means standard input, or standard output where something is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, Token

from weft.errors import ConfigError
from weft.fabric.files.streams import STANDARD


def _refuse_options(_: object, value: object) -> None:
    if value is not None and str(value).startswith("-") and str(value) != STANDARD:
        raise ValueError("there is no such option")


def _whole(_: object, tokens: Sequence[Token]) -> int:
    """cyclopts rounds 1.9 to 2 without a word."""
    text = tokens[0].value
    try:
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number") from None


# cyclopts takes a lone `-` for an option unless all that begin so are allowed.
NAMES_FILE = Parameter(allow_leading_hyphen=True, validator=_refuse_options)
Spec = Annotated[str, NAMES_FILE, Parameter(help="A topology, `superpod:su=1`, or the path of a file.")]
File = Annotated[Path | None, NAMES_FILE]
Whole = Annotated[int, Parameter(converter=_whole)]
Kinds = Annotated[
    str,
    Parameter(
        name="--as",
        help="Of which kind servers of a file are that says nothing of GPUs, by name: 'luna-*=dgx-a100', "
        "luna-0001..32=my-server.yaml; more by commas.",
    ),
]
Servers = Annotated[
    str,
    Parameter(
        help="The first so many servers of the fabric take part, or these by name: dgx1,dgx3, luna-0001..32 or "
        "'luna-*'. Else all.",
    ),
]
Picture = Annotated[File, Parameter(name=["--picture", "--plot"])]
LabName = Annotated[str, Parameter(help="The lab, if more than one runs.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Form:
    """In which form a command prints what it found; a string below a field is its help."""

    json: bool = False
    """Print JSON instead of tables."""
    csv: bool = False
    """Print CSV instead of tables: the records of the JSON, a row each."""

    def __post_init__(self) -> None:
        if self.json and self.csv:
            raise ConfigError("--json and --csv are two forms of the same: leave out one; --no-json or --no-csv does")

    @property
    def is_data(self) -> bool:
        """For programs."""
        return self.json or self.csv


TABLES = Form()
