"""Advice in sentences: for whoever decides, and for whoever has to explain it."""

from __future__ import annotations

from collections.abc import Iterator

from weft.advise.advice import Advice, Said
from weft.advise.facts import facts
from weft.advise.rows import Row, middle
from weft.compare.words import ALIKE, TIE, show_time
from weft.sim.figures import format_size
from weft.training.transformer import find


def asked(found: Advice) -> str:
    """`1,024 GPUs (128 × dgx-h100), training of llama3-70b`."""
    case, work = found.case, found.case.work
    size = (
        f"{case.gpus:,} GPUs ({case.servers:,} × {case.server})" if case.template.gpus else f"{case.servers:,} servers"
    )
    if work.model:
        what = "training" if work.name == "training" else "training in each server alone,"
        batch = f"{case.sequences} sequences a GPU" if case.tokens is None else f"{_tokens(found):.3g} M tokens a step"
        return f"{size}, {what} of {case.trained}, {batch}"
    message = format_size(case.bytes_sent)
    return f"{size}, {work.name}: {work.sends}, {message}, {case.rate:,.10g} a second of computing"


def _tokens(found: Advice) -> float:
    """Return the tokens of a training step over all GPUs, in millions."""
    seq = find(found.case.trained).seq
    return found.case.batch(seq) * seq / 1e6


def headline(found: Advice) -> str:
    """The answer in one sentence."""
    if found.case.servers == 1:
        return "You need no fabric: there is one server, and nothing leaves it."
    best = found.verdict.best
    if best is None:
        least = min(found.rows, key=lambda row: row.price_usd)
        budget = found.case.budget_usd or 0.0
        return (
            f"Nothing: {budget:,.0f} USD pay for no fabric. The least, {least.option.label}, costs "
            f"{least.price.short} USD."
        )
    if len({row.option.answer for row in found.verdict.chosen}) == 1:
        needs = "You need InfiniBand" if found.answer == "InfiniBand" else "You do not need InfiniBand"
        return f"{needs}: take {best.option.label}."
    others = ", ".join(row.option.label for row in found.verdict.chosen[1:])
    return f"Either will do: {best.option.label} ({_why_first(found)}), or {others}."


def _why_first(found: Advice) -> str:
    best = found.verdict.best
    if found.case.team and best is not None:
        knows = "infiniband" if best.option.answer == "InfiniBand" else "ethernet"
        if knows == found.case.team:
            return "your team knows it"
    return "it is cheaper to buy"


def reasons(found: Advice) -> Iterator[str]:
    """What decided, with its figures."""
    best, case = found.verdict.best, found.case
    if best is None:
        return
    yield _about_time(found, best)
    if not case.cloud:
        yield _about_money(found, best)
    fastest = found.verdict.fastest
    gain = best.seconds / fastest.seconds - 1
    if fastest not in found.verdict.chosen and gain > ALIKE:
        yield f"If only time counts: {fastest.option.label}, {_percent(gain)} faster."
    for row in found.verdict.too_dear:
        yield f"{row.option.label} is over the budget: {row.price.short} USD."
    for label, why in found.left_out.items():
        yield f"{label} is left out: {why}."
    if case.work.name == "storage" and len(found.rows) > 3:
        yield _about_mixing(found)
    if case.servers == 1 or case.work.name == "single-node":
        inside = "NVLink" if case.template.nvlink_spread or case.template.nvlink_pairs else "PCIe"
        yield f"No cable is used, so the time is the same on each: the GPUs of a server talk over {inside}."
    if case.work.name == "training" and _tokens(found) > 2 * (usual := facts()["batch"]["tokens"] / 1e6):
        yield (
            f"A step has {_tokens(found):,.0f} M tokens, and large models are trained with about {usual:g} M: a "
            f"smaller batch hides less of the network, --tokens {usual:g}M."
        )
    if case.team and _knows_not(best, case.team):
        yield f"Your team knows {case.team}: plan for learning, or weigh it against the difference."


def _knows_not(best: Row, team: str) -> bool:
    return (best.option.answer == "InfiniBand") != (team == "infiniband")


def _about_time(found: Advice, best: Row) -> str:
    told = f"One {found.case.work.unit} takes {show_time(1e6 * best.seconds)}, {_lost(best)}"
    others = [row for row in found.rows if row is not best]
    beside = [f"{row.option.label} {_difference(row.seconds / best.seconds)}" for row in others]
    return f"{told}; {', '.join(beside)}."


def _lost(row: Row) -> str:
    share = 100 * row.timed.waits
    return f"{share:.1f} % of it lost to the network" if share >= 0.05 else "none of it lost to the network"


def _difference(times: float) -> str:
    if abs(times - 1) < ALIKE:
        return "as long"
    if times >= 2:
        return f"{times:.1f} times as long"
    return f"{_percent(abs(times - 1))} {'longer' if times > 1 else 'less'}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:,.0f} %"


def _about_money(found: Advice, best: Row) -> str:
    others = [row for row in found.rows if row is not best and row.price_usd]
    if not best.price_usd:
        return "One server needs no fabric: nothing is bought."
    prices = ", ".join(f"{row.option.label} {row.price_usd / best.price_usd:.2g} times as much" for row in others)
    costs = ", ".join(f"{row.option.label} {_sign(row.unit_usd / best.unit_usd - 1)}" for row in others)
    return (
        f"The fabric costs {best.price.short} USD to buy, cards included; {prices}. With servers and electricity "
        f"{found.counted} cost {_usd(best.unit_usd)} USD; {costs}."
    )


def _usd(usd: float) -> str:
    return f"{usd:,.0f}" if usd >= 100 else f"{usd:.3g}"


def _sign(share: float) -> str:
    return (
        "the same" if abs(share) < 0.0005 else f"{100 * share:+.2g} %" if abs(share) < 1 else f"{100 * share:+,.0f} %"
    )


def _about_mixing(found: Advice) -> str:
    """Compute on InfiniBand: what storage on Ethernet beside it costs."""
    on, beside = (next(row for row in found.rows if row.option.storage == kind) for kind in ("same", "ethernet"))
    return (
        f"Mixed fabrics: compute on {on.option.wire.name} with storage on Ethernet makes one {found.case.work.unit} "
        f"{_difference(beside.seconds / on.seconds)} than with storage on the same fabric."
    )


def vendor_risk(found: Advice) -> str:
    """Stated, never scored."""
    vendors = facts()["vendors"]
    sold = {name: len(vendors[name]["names"]) for name in vendors}
    row = next((one for one in found.rows if one.option.wire.network == "infiniband"), None)
    buys = row is not None and row.price_usd and not found.case.cloud
    bill = f": another {row.price.short} USD" if row and buys else ""
    return (
        f"InfiniBand comes from {' and '.join(vendors['infiniband']['names'])} alone, RoCE from {sold['roce']} makers, "
        f"Ethernet from {sold['tcp']}. If its vendor leaves, InfiniBand is replaced whole{bill}. It has happened: "
        f"{vendors['infiniband']['story']}."
    )


def cloud(found: Advice) -> str:
    """What is rented instead."""
    rented = facts()["clouds"]
    offers = "; ".join(f"{label}: {', '.join(rented[key])}" for key, label in _CLOUDS.items())
    return (
        "In a cloud no switch is bought: what fabrics cost and draw does not count, servers cost the same with each, "
        f"and you can have what is offered. {offers}; {', '.join(rented['other'])}."
    )


_CLOUDS = {"infiniband": "InfiniBand", "roce": "RoCE", "tcp": "Ethernet"}


def elsewhere(found: Advice, one: Said) -> str:
    """Where the runs come out otherwise than an overview says, with figures."""
    said = f'"{one.quote}" ({one.source}).'
    rows = [row for row in found.rows if row.option.answer in one.answers and row.option.storage != "ethernet"]
    best = found.verdict.best
    if one.agrees:
        return f"{said} {'So here.' if {*one.here.split()} <= {*one.answers} else f'Here {one.here}.'}"
    if best is None or not rows:
        return f"{said} Here: {one.here}."
    other = min(rows, key=lambda row: row.unit_usd)
    costs = "" if found.case.cloud else f", and {found.counted} cost {_sign(other.unit_usd / best.unit_usd - 1)}"
    time = _difference(other.seconds / best.seconds)
    return f"{said} Not here: on {other.option.label} one {found.case.work.unit} takes {time}{costs}."


def trust(found: Advice) -> str:
    """What the answer rests on, and what it does not know."""
    prices = "Prices are middles of bands from weak sources: put in your own, --prices FILE. "
    work = found.case.work
    ran = (
        "Steps are run by flows over each fabric's routes, every fabric with the fastest layout it has; 7 % off "
        "published ones in the mean. "
        if work.model
        else "Messages go over each fabric's routes while all servers send; nobody else uses the network. "
    )
    return (
        f"{ran}{'' if found.case.cloud else prices}RoCE is taken to be lossless and tuned, with plain ECMP. "
        f"Differences under {100 * TIE:.0f} % are ties. Where it changes is by closed forms, fitted to the runs."
    )


def price_usd(row: Row) -> str:
    return row.price.short if middle(row.price) else "nothing"
