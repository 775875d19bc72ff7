"""`weft links`: list the data rates of link speeds."""

from __future__ import annotations

from weft.cli.arguments import TABLES, Form
from weft.cli.output import console, print_data, table
from weft.units import format_gbit_s, gbyte_s


def links(*, form: Form = TABLES) -> None:
    """List link speeds: encoding, data rate by width, year."""
    from weft.fabric.rates import speeds

    if form.is_data:
        print_data(
            form,
            [
                {field: getattr(speed, field) for field in speed.__struct_fields__ if field != "index"}
                | {"rate_gbit_s": {f"{width}x": speed.rate_gbit_s(width) for width in speed.widths}}
                for speed in speeds()
            ],
        )
        return
    rows = [
        (
            speed.name,
            speed.technology.value,
            format_gbit_s(speed.lane_signal_gbit_s),
            speed.encoding,
            "  ".join(f"{width}x {format_gbit_s(speed.rate_gbit_s(width))}" for width in speed.widths),
            format_gbit_s(speed.rate_gbit_s()),
            format_gbit_s(gbyte_s(speed.rate_gbit_s())),
            str(speed.year) if speed.year else "planned",
        )
        for speed in speeds()
    ]
    heads = ("speed", "technology", "lane Gbit/s", "encoding", "data Gbit/s by width", "usual", "Gbyte/s", "year")
    note = "Data rate of one direction = lanes × lane rate × encoding. Sources: weft links --json"
    console().print(table("Link speeds", heads, rows, note))
