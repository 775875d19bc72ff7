"""Questions on a terminal for the options of `weft advise`. Enter takes the default in brackets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.advise.case import STORAGE, TEAMS, WORKLOADS, find_workload
from weft.errors import ConfigError, find_named
from weft.units import parse_count, parse_size_bytes

Read = Callable[[str], str]
Say = Callable[[str], None]


def ask(read: Read, say: Say) -> dict[str, Any]:
    """Ask the questions until the end of input; return valid answers by option name."""
    answers: dict[str, Any] = {}
    try:
        say("What do the servers do?")
        for workload in WORKLOADS.values():
            say(f"  {workload.name:12} {workload.about}")
        answers["workload"] = _ask_one(read, say, "Which", "training", lambda text: find_workload(text).name)
        work = WORKLOADS[answers["workload"]]
        if work.name == "web":
            answers["servers"] = _ask_one(read, say, "How many servers", "32", _count)
        else:
            answers["gpus"] = _ask_one(
                read, say, "How many GPUs, 8 in a DGX H100", "1024" if work.model else "256", _count
            )
        if work.model:
            answers["model"] = _ask_one(read, say, "Which model", work.model, _model)
        if work.sends:
            size, rate = _short(work.message_bytes), f"{work.rate_per_s:g}"
            answers["message_bytes"] = _ask_one(read, say, f"Bytes of {work.sends}", size, _size)
            answers["rate_per_s"] = _ask_one(read, say, "How often per second of computing", rate, _number)
        if work.name == "training":
            answers["storage"] = _ask_one(
                read, say, f"Checkpoints go to storage: {', '.join(STORAGE)}", "none", _of(STORAGE)
            )
        answers["cloud"] = _ask_one(read, say, "Rented in a cloud, yes or no", "no", _yes)
        if not answers["cloud"]:
            budget = _ask_one(read, say, "Budget for the fabric in USD, 3M, or none", "none", _budget)
            answers |= {"budget_usd": budget} if budget else {}
        team = _ask_one(read, say, "What does the team know: infiniband, ethernet or both", "both", _team)
        answers |= {"team": team} if team else {}
    except EOFError:
        say("")
    return answers


def _ask_one(read: Read, say: Say, question: str, default: str, check: Callable[[str], Any]) -> Any:
    while True:
        text = read(f"{question} [{default}]: ").strip() or default
        try:
            return check(text)
        except ConfigError as error:
            say(f"  {error}")


def _of(choices: tuple[str, ...]) -> Callable[[str], str]:
    return lambda text: find_named("answer", text, {choice: choice for choice in choices})


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not int(text):
        raise ConfigError(f"{text!r} is not a number above 0; write 256")
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
    return "" if text == "both" else find_named("answer", text, {team: team for team in TEAMS if team})
