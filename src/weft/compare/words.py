"""What a comparison says in words: the finding, why, and how far to trust it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.fabric import catalog
from weft.fabric.prices import Bill
from weft.units import gbyte_s

if TYPE_CHECKING:
    from weft.compare.comparison import Comparison, Outcome

_INSIDE = {"NVLink": "NVLink", "channels": "what NCCL's channels copy"}
_FULL = 0.88  # of the line rate: an adapter that carries so much is not held up


def show_time(us: float) -> str:
    """`812 µs`, `5.47 ms`, `1.2 s`: three digits."""
    for unit_us, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= unit_us:
            return f"{_three(us / unit_us)} {unit}"
    return f"{_three(us)} µs"


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


def finding(found: Comparison) -> str:
    """One sentence on time, one on money."""
    best, worst = found.fastest, found.slowest
    takes = "takes" if sum(call.count for call in found.job.calls) == 1 else "take"
    time = f"{show_time(best.time_us)} ({_three(best.bus_gbyte_s)} GB/s bus bandwidth)"
    said = f"On {found.gpus:,} GPUs {found.job} {takes} {time} with {best.wire.label}"
    if worst is not best:
        said += f", and {_longer(worst, best)} with {worst.wire.label}"
    return f"{said}. {_money(found)}".strip()


def _money(found: Comparison) -> str:
    """What the fastest costs of those that have a price, and the fastest of those that cost less."""
    priced = [one for one in found.outcomes if one.bill.complete]
    if not priced:
        return "The catalog has no price for any of them." if len(found.outcomes) > 1 else "The catalog has no price."
    best = min(priced, key=lambda one: one.time_us)
    whose = best.wire.label if best is found.fastest else f"{best.wire.label} ({_longer(best, found.fastest)})"
    said = f"{whose} costs {show_usd(best.bill)} USD for the fabric"
    cheaper = [one for one in priced if one.bill.high_usd < best.bill.high_usd]
    if not cheaper:
        return f"{said}{', the least of all that have a price' if len(priced) > 1 else ''}."
    other = min(cheaper, key=lambda one: one.time_us)
    return f"{said}; {other.wire.label} ({_longer(other, found.fastest)}) {show_usd(other.bill)}."


def _longer(one: Outcome, best: Outcome) -> str:
    """`as long`, `2.4 % longer`, `12 times as long`."""
    ratio = one.time_us / best.time_us
    if ratio < 1.0005:
        return "as long"
    return f"{100 * (ratio - 1):.2g} % longer" if ratio < 1.995 else f"{_times(ratio)} as long"


def why(one: Outcome) -> str:
    """The bottleneck of one fabric, in a sentence or two."""
    moving = 100 * one.parts_us.get("data", 0.0) / one.time_us
    if one.bound == "latency":
        return (
            f"{100 - moving:.0f} % of the time is not data: GPUs start, fill their pipelines and wait for each other, "
            f"and a step between two servers takes {one.networks[one.pattern].step_us:.2g} µs."
        )
    if one.bound != "adapters":
        limit = _INSIDE.get(one.bound, one.bound)
        return f"{moving:.0f} % of the time is data, and the limit is {limit}, not the network."
    line_gbyte_s = gbyte_s(one.cluster.nic_gbit_s)
    carried = f"each of {one.cluster.nics} adapters carries {one.adapter_gbyte_s:.1f} of {line_gbyte_s:g} GB/s"
    return f"{moving:.0f} % of the time is data: {carried}{_held_up(one, line_gbyte_s)}."


def _held_up(one: Outcome, line_gbyte_s: float) -> str:
    """What keeps an adapter from its line rate."""
    if one.adapter_gbyte_s > _FULL * line_gbyte_s:
        return ", so the line is the limit"
    if one.wire.network == "tcp":
        return (
            ", because the kernel copies every byte and one core copies for a connection; NCCL opens more of them with "
            "NCCL_NSOCKS_PERTHREAD, which is not modelled"
        )
    if one.crowd is not None:
        return f". {one.crowd}"
    card = catalog.adapter(one.wire.adapter)
    slot = one.template.slot(card)
    if slot != card.pcie_per_port:
        return f", because the server's slots speak {slot} and the card is made for {card.pcie_per_port}"
    return ""


def trust(found: Comparison) -> str:
    """What the figures rest on, and what they leave out."""
    held = [one for one in found.outcomes if one.published.runs]
    bare = [one.wire.name for one in found.outcomes if not one.published.runs]
    checked = ""
    if held:
        errors = ", ".join(f"{one.wire.name} {100 * one.published.worst:.0f} %" for one in held)
        servers = max(one.published.servers for one in held)
        checked += f"Beside published nccl-tests of about this size, on up to {servers} servers, weft is at most "
        checked += f"so much off: {errors}; constants were fitted to some of these. "
    if bare:
        checked += f"No published run is like {_either(bare)}. "
    engine = found.fastest.results[found.fastest.pattern].engine
    return (
        f"{checked}Rates and latencies are those of the {engine} engine over each fabric's own routes; times are "
        "closed form for what NCCL would choose, with nothing else on the network. Left out: congestion control, "
        "pauses and losses, by which incasts hurt RoCE and TCP more; SHARP; jitter; computing that hides "
        "communication. Prices are weak."
    )


def without_price(bill: Bill) -> str:
    return ", ".join(str(item) for item in bill.missing)


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 10 else f"{ratio:,.0f} times"


def _three(value: float) -> str:
    """Three digits, no exponent."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def _two(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
