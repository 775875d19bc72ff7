"""The advice as `--json` prints it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from weft.advise.advice import Advice
from weft.advise.case import Case
from weft.advise.formatting import cloud, headline, reasons, trust, vendor_risk
from weft.version import __version__


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
    own = {"gpus": case.gpus, "message_bytes": case.bytes_sent, "rate_per_s": case.rate, "model": case.trained}
    names = ("workload", "servers", "server", "storage", "budget_usd", "cloud", "team", "sequences", "tokens")
    return {name: getattr(case, name) for name in names} | own
