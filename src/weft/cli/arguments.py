"""Arguments that several commands share. A file named `-` is standard input, or standard output for results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, Token

from weft.errors import ConfigError
from weft.fabric.files.text import STANDARD

NO_OPTION = "there is no such option"


def _refuse_options(_: object, value: object) -> None:
    if value is not None and str(value).startswith("-") and str(value) != STANDARD:
        raise ValueError(NO_OPTION)


def _parse_whole(_: object, tokens: Sequence[Token]) -> int:
    """Parse a whole number; cyclopts would round 1.9 to 2."""
    text = tokens[0].value
    try:
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


# Without allow_leading_hyphen, cyclopts takes a lone `-` for an option.
NAMES_FILE = Parameter(allow_leading_hyphen=True, validator=_refuse_options)
Spec = Annotated[str, NAMES_FILE, Parameter(help="A topology, `superpod:su=1`, or the path of a file.")]
File = Annotated[Path | None, NAMES_FILE]
Whole = Annotated[int, Parameter(converter=_parse_whole)]
OnByDefault = Annotated[bool, Parameter(negative_bool="no-")]
OnOrOff = Annotated[bool | None, Parameter(negative_bool="no-")]
Kinds = Annotated[
    str,
    Parameter(
        name="--as",
        help="Server type for hosts in a file without GPU information: 'luna-*=dgx-a100', "
        "'dgx[1-16]=dgx-h100', luna-0001..32=my-server.yaml; several separated by commas.",
    ),
]
Servers = Annotated[
    str,
    Parameter(
        help="Servers: a number (the first N) or names, dgx1,dgx3, 'dgx[1-16]', luna-0001..32, 'luna-*'. "
        "[default: all]",
    ),
]
Faults = Annotated[
    tuple[str, ...],
    Parameter(
        help="A fault: cut:leaf1/40, slow:leaf1/3=4xHDR or dead:spine1. Repeat it for several.",
    ),
]
RoutingEngine = Annotated[
    str,
    Parameter(
        name=("--routing-engine", "-R"),
        help="Routing engine: auto, fat-tree, up-down, min-hop, dfsssp, dimension-order or dragonfly. "
        "[auto; the fabric's own tables where it has some]",
    ),
]
Fabrics = Annotated[
    str | None,
    Parameter(help="Fabrics to compare, names of `weft catalog` separated by commas: ndr,roce-400,eth-100-tcp."),
]
LabName = Annotated[str, Parameter(help="The lab, if several run.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Form:
    """The output format of a command. The string below a field is its help."""

    json: bool = False
    """Print JSON instead of tables."""
    csv: bool = False
    """Print CSV instead of tables: one row per record of the JSON."""

    def __post_init__(self) -> None:
        if self.json and self.csv:
            raise ConfigError("use --json or --csv, not both")

    @property
    def is_data(self) -> bool:
        """Return whether the output is JSON or CSV."""
        return self.json or self.csv


TABLES = Form()
