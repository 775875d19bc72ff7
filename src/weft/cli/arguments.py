"""Arguments that name a fabric or a file; `-` means standard input, or standard output where something is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from weft.fabric.files.streams import STANDARD


def _refuse_options(_: object, value: object) -> None:
    if value is not None and str(value).startswith("-") and str(value) != STANDARD:
        raise ValueError("there is no such option")


# cyclopts takes a lone `-` for an option unless all that begin so are allowed.
NAMES_FILE = Parameter(allow_leading_hyphen=True, validator=_refuse_options)
Spec = Annotated[str, NAMES_FILE, Parameter(help="A topology, `superpod:su=1`, or the path of a file.")]
File = Annotated[Path | None, NAMES_FILE]
LabName = Annotated[str, Parameter(help="The lab, if more than one runs.")]
Json = Annotated[bool, Parameter(help="Print JSON instead of a table.")]
