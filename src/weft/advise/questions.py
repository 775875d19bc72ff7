"""The few things that must be known, asked on a terminal. Enter takes the default in brackets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.advise.case import STORAGE, TEAMS, WORKLOADS, find_workload
from weft.errors import ConfigError, find_named
from weft.units import parse_count, parse_size_bytes

Read = Callable[[str], str]
Say = Callable[[str], None]


def ask(read: Read, say: Say) -> dict[str, Any]:
    """Answers as the flags have them. An answer that cannot be is asked again; after the end of input none is."""
    told: dict[str, Any] = {}
    try:
        say("What do the servers do?")
        for one in WORKLOADS.values():
            say(f"  {one.name:12} {one.about}")
        told["workload"] = _one(read, say, "Which", "training", lambda text: find_workload(text).name)
        work = WORKLOADS[told["workload"]]
        if work.name == "web":
            told["servers"] = _one(read, say, "How many servers", "32", _count)
        else:
            told["gpus"] = _one(read, say, "How many GPUs, 8 in a DGX H100", "1024" if work.model else "256", _count)
        if work.model:
            told["model"] = _one(read, say, "Which model", work.model, _model)
        if work.sends:
            size, rate = _short(work.message_bytes), f"{work.rate_per_s:g}"
            told["message_bytes"] = _one(read, say, f"Bytes of {work.sends}", size, _size)
            told["rate_per_s"] = _one(read, say, "How often in a second of computing", rate, _number)
        if work.name == "training":
            told["storage"] = _one(read, say, f"Checkpoints go to storage: {', '.join(STORAGE)}", "none", _of(STORAGE))
        told["cloud"] = _one(read, say, "Rented in a cloud, yes or no", "no", _yes)
        if not told["cloud"]:
            budget = _one(read, say, "Budget for the fabric in USD, 3M, or none", "none", _budget)
            told |= {"budget_usd": budget} if budget else {}
        team = _one(read, say, "What does the team know: infiniband, ethernet or both", "both", _team)
        told |= {"team": team} if team else {}
    except EOFError:
        say("")
    return told


def _one(read: Read, say: Say, question: str, default: str, check: Callable[[str], Any]) -> Any:
    while True:
        text = read(f"{question} [{default}]: ").strip() or default
        try:
            return check(text)
        except ConfigError as error:
            say(f"  {error}")


def _of(known: tuple[str, ...]) -> Callable[[str], str]:
    return lambda text: find_named("answer", text, {one: one for one in known})


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not int(text):
        raise ConfigError(f"{text!r} is no number above 0: write 256")
    return int(text)


def _number(text: str) -> float:
    return parse_count("times", text)


def _model(text: str) -> str:
    from weft.training.transformer import find

    find(text)
    return text


def _size(text: str) -> str:
    parse_size_bytes(text)
    return text


def _short(size_bytes: int) -> str:
    from weft.units import format_size_bytes

    return format_size_bytes(size_bytes)


def _yes(text: str) -> bool:
    return find_named("answer", text, {"yes": True, "no": False, "y": True, "n": False})


def _budget(text: str) -> str:
    if text == "none":
        return ""
    parse_count("budget", text)
    return text


def _team(text: str) -> str:
    return "" if text == "both" else find_named("answer", text, {one: one for one in TEAMS if one})
