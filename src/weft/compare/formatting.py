"""Format times, prices and shares of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from weft.plan.bill import Bill

ALIKE = 0.005  # narrower than any band: closer times count as equal
TIE = 0.05  # below the accuracy of the model: between closer times the price decides


def show_time(us: float) -> str:
    """Format a time with three digits: `812 µs`, `5.47 ms`, `1.2 s`."""
    for unit_us, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= unit_us:
            return f"{three(us / unit_us)} {unit}"
    return f"{three(us)} µs"


def show_band(low_us: float, high_us: float) -> str:
    """Format a band: `4.66 to 6.42 ms`, `730 µs to 1.2 ms`."""
    low, high = show_time(low_us), show_time(high_us)
    return f"{low.split()[0] if low.split()[1] == high.split()[1] else low} to {high}"


def show_longer(ratio: float) -> str:
    """Return `as long`, `2.4 % longer`, `12 times as long`."""
    if ratio - 1 < ALIKE:
        return "as long"
    if ratio < 1.995:
        return f"{100 * (ratio - 1):.2g} % longer"
    return f"{ratio:.1f} times as long" if ratio < 10 else f"{ratio:,.0f} times as long"


def show_usd(bill: Bill) -> str:
    """Format the total: `1.3 to 2.2 million`; `no price` if switches or adapters have none."""
    return bill.total.short if bill.complete else "no price"


def show_parts(parts_us: dict[str, float]) -> str:
    """Format the parts of a time in per cent, `data 97, steps 2`: the largest first, from two per cent on."""
    total = sum(parts_us.values()) or 1.0
    shares = sorted(((100 * us / total, part) for part, us in parts_us.items()), reverse=True)
    return ", ".join(f"{part} {share:.0f}" for share, part in shares if share >= 2)


def without_price(bill: Bill) -> str:
    return ", ".join(map(str, bill.missing))


def notes(bill: Bill) -> list[str]:
    """Return the notes on lines of a bill: `32 × 16-port NDR switch: no product, ...`."""
    return [f"{item}: {item.note}" for item in bill.lines if item.note]


def weakness(bills: Sequence[Bill]) -> str:
    """Return a sentence on the quality of the prices."""
    weak = [item.price.weak for bill in bills for item in bill.items if item.price]
    if all(weak):
        return "All prices are rough estimates."
    return "Some prices are rough estimates." if any(weak) else "Prices are your own."


def three(value: float) -> str:
    """Format a number with three digits and no exponent."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"
