"""Times, prices and shares as a comparison writes them."""

from __future__ import annotations

from weft.plan.bill import Bill


def show_time(us: float) -> str:
    """`812 µs`, `5.47 ms`, `1.2 s`: three digits."""
    for unit_us, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= unit_us:
            return f"{three(us / unit_us)} {unit}"
    return f"{three(us)} µs"


def show_usd(bill: Bill) -> str:
    """`1.3 to 2.2 million`; `no price` where switches or adapters have none."""
    if not bill.complete:
        return "no price"
    millions = bill.high_usd >= 1e6
    low, high = (_two(usd / (1e6 if millions else 1e3)) for usd in (bill.low_usd, bill.high_usd))
    return f"{low} to {high} {'million' if millions else 'thousand'}"


def show_parts(parts_us: dict[str, float]) -> str:
    """`data 97, steps 2`, in per cent: the largest first, nothing below two."""
    total = sum(parts_us.values()) or 1.0
    shares = sorted(((100 * us / total, part) for part, us in parts_us.items()), reverse=True)
    return ", ".join(f"{part} {share:.0f}" for share, part in shares if share >= 2)


def without_price(bill: Bill) -> str:
    return ", ".join(str(item) for item in bill.missing)


def three(value: float) -> str:
    """Three digits, no exponent."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def _two(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
