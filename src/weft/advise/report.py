"""Advice as `--json` prints it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from weft.advise.advice import Advice
from weft.advise.case import Case
from weft.advise.words import cloud, headline, reasons, trust, vendor_risk
from weft.version import __version__


def report(found: Advice) -> dict[str, Any]:
    case, best = found.case, found.verdict.best
    return {
        "weft": __version__,
        "answer": found.answer,
        "take": best.option.name if best else None,
        "fastest": found.verdict.fastest.option.name,
        "headline": headline(found),
        "reasons": list(reasons(found)),
        "unit": case.work.unit,
        "counted": found.counted,
        "fabrics": [row.report() for row in found.rows],
        "left_out": found.left_out,
        "flips": [flip.report() for flip in found.flips],
        "vendor_risk": vendor_risk(found),
        "cloud": cloud(found) if case.cloud else None,
        "said_elsewhere": [asdict(one) for one in found.said],
        "trust": trust(found),
        "options": _asked(case),
        "seed": case.seed,
    }


def _asked(case: Case) -> dict[str, Any]:
    own = {"gpus": case.gpus, "message_bytes": case.bytes_sent, "rate_per_s": case.rate, "model": case.trained}
    kept = ("workload", "servers", "server", "storage", "budget_usd", "cloud", "team", "sequences", "tokens")
    return {name: getattr(case, name) for name in kept} | own
