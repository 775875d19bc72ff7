"""The advice in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from weft.advise.advice import Advice, PublishedAdvice
from weft.advise.case import Case
from weft.advise.rows import Row, middle
from weft.advise.rule import facts
from weft.compare.formatting import ALIKE, TIE, show_time
from weft.sim.figures import format_size
from weft.training.transformer import find
from weft.version import __version__


def describe_case(advice: Advice) -> str:
    """Return the case in a phrase: `1,024 GPUs (128 × dgx-h100), training of llama3-70b`."""
    case, work = advice.case, advice.case.work
    size = (
        f"{case.gpus:,} GPUs ({case.servers:,} × {case.server})" if case.template.gpus else f"{case.servers:,} servers"
    )
    if work.name == "inference":
        lengths = f"prompts of {case.prompt_tokens:,} and answers of {case.answer_tokens:,} tokens"
        served = f"{case.chosen_model} served in {case.weights}"
        return f"{size}, {served}: {lengths}, at most {1000 * case.tpot_s:g} ms per output token"
    if work.model:
        task = "training" if work.name == "training" else "training in each server alone,"
        batch = f"{case.sequences} sequences a GPU" if case.tokens is None else f"{_tokens(advice):.3g} M tokens a step"
        return f"{size}, {task} of {case.chosen_model}, {batch}"
    message = format_size(case.bytes_sent)
    return f"{size}, {work.name}: {work.sends}, {message}, {case.rate:,.10g} a second of computing"


def _tokens(advice: Advice) -> float:
    """Return the tokens of a training step over all GPUs, in millions."""
    seq = find(advice.case.chosen_model).seq
    return advice.case.batch(seq) * seq / 1e6


def headline(advice: Advice) -> str:
    """Return the answer in one sentence."""
    if advice.case.servers == 1:
        return "You need no fabric: there is only one server."
    best = advice.verdict.best
    if best is None:
        least = min(advice.rows, key=lambda row: row.price_usd)
        budget = advice.case.budget_usd or 0.0
        return (
            f"No fabric fits the budget of {budget:,.0f} USD. The cheapest, {least.option.label}, costs "
            f"{least.price.short} USD."
        )
    if len({row.option.answer for row in advice.verdict.chosen}) == 1:
        needs = "You need InfiniBand" if advice.answer == "InfiniBand" else "You do not need InfiniBand"
        return f"{needs}: take {best.option.label}."
    alternatives = ", ".join(row.option.label for row in advice.verdict.chosen[1:])
    return f"Either will do: {best.option.label} ({_why_first(advice)}), or {alternatives}."


def _why_first(advice: Advice) -> str:
    best = advice.verdict.best
    if advice.case.team and best is not None:
        knows = "infiniband" if best.option.answer == "InfiniBand" else "ethernet"
        if knows == advice.case.team:
            return "your team knows it"
    return "it is cheaper to buy"


def reasons(advice: Advice) -> Iterator[str]:
    """Yield the reasons for the answer, with figures."""
    best, case = advice.verdict.best, advice.case
    if best is None:
        return
    yield _about_time(advice, best)
    if not case.cloud:
        yield _about_money(advice, best)
    fastest = advice.verdict.fastest
    gain = best.seconds / fastest.seconds - 1
    if fastest not in advice.verdict.chosen and gain > ALIKE:
        yield f"If only time counts: {fastest.option.label}, {_percent(gain)} faster."
    for row in advice.verdict.too_dear:
        yield f"{row.option.label} is over the budget: {row.price.short} USD."
    for label, why in advice.left_out.items():
        yield f"{label} is left out: {why}."
    if case.work.name == "storage" and len({row.option.storage for row in advice.rows}) > 1:
        yield _about_mixing(advice)
    if best.timed.layout:
        yield _about_replicas(advice, best)
    if case.servers == 1 or case.work.name == "single-node":
        inside = "NVLink" if case.template.nvlink_spread or case.template.nvlink_pairs else "PCIe"
        yield f"No cable is used, so the time is the same on each: the GPUs of a server talk over {inside}."
    if case.work.name == "training" and _tokens(advice) > 2 * (usual := facts()["batch"]["tokens"] / 1e6):
        yield (
            f"A step has {_tokens(advice):,.0f} M tokens, and large models are trained with about {usual:g} M: a "
            f"smaller batch hides less of the network, --batch-tokens {usual:g}M."
        )
    if case.team and _knows_not(best, case.team):
        yield f"Your team knows {case.team}: plan for learning, or weigh it against the difference."


def _knows_not(best: Row, team: str) -> bool:
    return (best.option.answer == "InfiniBand") != (team == "infiniband")


def _about_time(advice: Advice, best: Row) -> str:
    unit = advice.case.work.unit
    time = f"One {unit} {'take' if unit.endswith('s') else 'takes'} {show_time(1e6 * best.seconds)}, {_lost(best)}"
    alternatives = [row for row in advice.rows if row is not best]
    beside = [f"{row.option.label} {_difference(row.seconds / best.seconds)}" for row in alternatives]
    return f"{time}; {', '.join(beside)}."


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


def _about_money(advice: Advice, best: Row) -> str:
    alternatives = [row for row in advice.rows if row is not best and row.price_usd]
    if not best.price_usd:
        return "One server needs no fabric: nothing is bought."
    prices = ", ".join(f"{row.option.label} {row.price_usd / best.price_usd:.2g} times as much" for row in alternatives)
    costs = ", ".join(f"{row.option.label} {_sign(row.unit_usd / best.unit_usd - 1)}" for row in alternatives)
    servers = "servers, whose price includes their cards," if advice.case.template.sold_with else "servers"
    return (
        f"The fabric costs {best.price.short} USD to buy, cards included; {prices}. With {servers} and electricity "
        f"{advice.counted} cost {_usd(best.unit_usd)} USD; {costs}."
    )


def _usd(usd: float) -> str:
    return f"{usd:,.0f}" if usd >= 100 else f"{usd:.3g}"


def _sign(share: float) -> str:
    return (
        "the same" if abs(share) < 0.0005 else f"{100 * share:+.2g} %" if abs(share) < 1 else f"{100 * share:+,.0f} %"
    )


def _about_replicas(advice: Advice, best: Row) -> str:
    """Return the layout of the replicas, and whether their GPUs use the fabric."""
    if best.timed.inside_servers:
        return f"Best layout: {best.timed.layout}; a replica stays within a server and sends nothing over the fabric."
    others = {row.timed.layout for row in advice.rows} - {best.timed.layout}
    beside = f" (elsewhere {', '.join(sorted(others))})" if others else ""
    return f"Best layout: {best.timed.layout}{beside}; a replica lies on several servers, which exchange each token."


def _about_mixing(advice: Advice) -> str:
    """Return how much slower compute on InfiniBand is with storage on a separate Ethernet."""
    on, beside = (next(row for row in advice.rows if row.option.storage == kind) for kind in ("same", "ethernet"))
    return (
        f"Mixed fabrics: compute on {on.option.interconnect.name} with storage on Ethernet makes one "
        f"{advice.case.work.unit} {_difference(beside.seconds / on.seconds)} than with storage on the same fabric."
    )


def vendor_risk(advice: Advice) -> str:
    """Return a sentence on vendor risk, which is not part of the rule."""
    vendors = facts()["vendors"]
    sold = {name: len(vendors[name]["names"]) for name in vendors}
    row = next((row for row in advice.rows if row.option.interconnect.network == "infiniband"), None)
    buys = row is not None and row.price_usd and not advice.case.cloud
    bill = f": another {row.price.short} USD" if row and buys else ""
    return (
        f"InfiniBand comes from {' and '.join(vendors['infiniband']['names'])} alone, RoCE from {sold['roce']} makers, "
        f"Ethernet from {sold['tcp']}. If its vendor leaves, InfiniBand is replaced whole{bill}. It has happened: "
        f"{vendors['infiniband']['story']}."
    )


def cloud(advice: Advice) -> str:
    """Return the networks that clouds offer."""
    rented = facts()["clouds"]
    offers = "; ".join(f"{label}: {', '.join(rented[key])}" for key, label in _CLOUDS.items())
    return (
        "In a cloud no switch is bought: what fabrics cost and draw does not count, servers cost the same with each, "
        f"and you can have what is offered. {offers}; {', '.join(rented['other'])}."
    )


_CLOUDS = {"infiniband": "InfiniBand", "roce": "RoCE", "tcp": "Ethernet"}


def compare_with_published(advice: Advice, published: PublishedAdvice) -> str:
    """Return a published recommendation and whether the runs agree, with figures."""
    quote = f'"{published.quote}" ({published.source}).'
    rows = [row for row in advice.rows if row.option.answer in published.answers and row.option.storage != "ethernet"]
    best = advice.verdict.best
    if published.agrees:
        same = {*published.verdict.split()} <= {*published.answers}
        return f"{quote} {'The same here.' if same else f'Here {published.verdict}.'}"
    if best is None or not rows:
        return f"{quote} Here: {published.verdict}."
    other = min(rows, key=lambda row: row.unit_usd)
    costs = "" if advice.case.cloud else f", and {advice.counted} cost {_sign(other.unit_usd / best.unit_usd - 1)}"
    time = _difference(other.seconds / best.seconds)
    return f"{quote} Not here: on {other.option.label} one {advice.case.work.unit} takes {time}{costs}."


def trust(advice: Advice) -> str:
    """Return the basis of the answer and its limits."""
    prices = "Prices are rough estimates (the middle of a band); give your own with --prices FILE. "
    work = advice.case.work
    ran = (
        "Replicas are predicted as by weft infer, with vLLM and the layout that is best on each fabric; each replica "
        "prefills and decodes. "
        if work.name == "inference"
        else "Steps are simulated as flows over each fabric's routes, with the fastest layout on each; 7 % off "
        "published ones in the mean. "
        if work.model
        else "Messages go over each fabric's routes while all servers send, with no other traffic. "
    )
    return (
        f"{ran}{'' if advice.case.cloud else prices}RoCE is taken to be lossless and tuned, with plain ECMP. "
        f"{_about_adaptive(advice)}"
        f"Differences under {100 * TIE:.0f} % are ties. Changes of the answer are from closed forms fitted to the runs."
    )


def short_trust(advice: Advice) -> str:
    """Return the evidence behind the answer in one line."""
    steps = "Training steps are 7 % off published ones on average. " if advice.case.work.trains else ""
    if advice.case.work.name == "inference":
        steps = "Bands are those of weft infer, from errors against published figures. "
    prices = "" if advice.case.cloud else "Prices are rough estimates: give your own with --prices FILE. "
    return f"{steps}{prices}{_about_adaptive(advice)}Differences under {100 * TIE:.0f} % are ties."


def _about_adaptive(advice: Advice) -> str:
    """Return how weak the ground is on which Ethernet with adaptive paths is timed."""
    names = dict.fromkeys(row.option.answer for row in advice.rows if row.option.interconnect.headlines_only)
    if not names:
        return ""
    return f"{' and '.join(names)} spread packets perfectly here: only vendors' headlines are published. "


def price_usd(row: Row) -> str:
    return row.price.short if middle(row.price) else "nothing"


def report(advice: Advice) -> dict[str, Any]:
    case, best = advice.case, advice.verdict.best
    return {
        "weft": __version__,
        "answer": advice.answer,
        "take": best.option.name if best else None,
        "fastest": advice.verdict.fastest.option.name,
        "headline": headline(advice),
        "reasons": list(reasons(advice)),
        "unit": case.work.unit,
        "counted": advice.counted,
        "fabrics": [row.report() for row in advice.rows],
        "left_out": advice.left_out,
        "flips": [flip.report() for flip in advice.flips],
        "vendor_risk": vendor_risk(advice),
        "cloud": cloud(advice) if case.cloud else None,
        "published_advice": [asdict(published) for published in advice.published],
        "trust": trust(advice),
        "options": _options_of(case),
        "seed": case.seed,
    }


def _options_of(case: Case) -> dict[str, Any]:
    own = {"gpus": case.gpus, "message_bytes": case.bytes_sent, "rate_per_s": case.rate, "model": case.chosen_model}
    names: tuple[str, ...] = (
        "workload",
        "servers",
        "server",
        "storage",
        "budget_usd",
        "cloud",
        "team",
        "sequences",
        "tokens",
    )
    if case.work.name == "inference":
        names += ("weights", "prompt_tokens", "answer_tokens", "tpot_s")
    return {name: getattr(case, name) for name in names} | own
