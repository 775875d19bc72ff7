"""`weft export`: convert a fabric to the file formats of other tools."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form
from weft.cli.output import console, print_data, progress_bar, report_written, table
from weft.errors import ConfigError


def export(
    spec: Annotated[str | None, NAMES_FILE] = None,
    /,
    *,
    output: Annotated[File, Parameter(name=["--output", "-o"])] = None,
    format: Annotated[str | None, Parameter(name=["--format", "-f"])] = None,  # noqa: A002
    form: Form = TABLES,
) -> None:
    """Convert a fabric to another tool's file format.

    Without SPEC, list the formats.

    Parameters
    ----------
    spec
        A topology, `superpod:su=1`, or the path of a file.
    output
        The file to write (for `opensm` a folder); - for standard output.
    format
        The format, if the suffix of the file does not determine it.
    """
    if spec is None:
        _list_formats(form)
        return
    if output is None:
        raise ConfigError("weft export needs -o FILE: where to write")
    from weft.api.fabrics import export as write

    with progress_bar(f"writing {output}"):
        write(spec, output, format)
    report_written(output)


def _list_formats(form: Form) -> None:
    from weft.fabric.files import FORMATS

    rows = [
        (entry.name, ", ".join(entry.suffixes), "yes" if entry.reads else "", "yes", entry.description)
        for entry in FORMATS.working().values()
    ]
    heads = ("format", "suffixes", "reads", "writes", "description")
    if form.is_data:
        print_data(form, [dict(zip(heads, row, strict=True)) for row in rows])
    else:
        console().print(table("Formats", heads, rows))
