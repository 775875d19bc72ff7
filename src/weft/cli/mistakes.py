"""What is wrong with the words of a command line: cyclopts finds it, and here it is told in weft's own form.

The command, the word, the rule and the way out: cyclopts' own messages lack the first and the last.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from cyclopts.exceptions import (
    CoercionError,
    ConsumeMultipleError,
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
    ValidationError,
)

from weft.cli.elsewhere import way_out, way_to

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.argument import Argument

_OPTIONS_TOLD = 6
_NCCL = "--NCCL_"
_NEAR = 0.9
_KINDS = {float: "number", int: "whole number"}


def explain(error: CycloptsError, app: App) -> str:
    chain = list(error.command_chain or ())
    command = " ".join(["weft", *chain])
    error.verbose = False
    if isinstance(error, UnknownCommandError):
        word = next(iter(error.unused_tokens or ()), "")
        known = way_to(word) if not chain else None
        return (
            f"there is no command {word!r}: {known}"
            if known
            else f"{_rule(error, [])}\n  `{command} --help` lists them."
        )
    arguments = _arguments(app, chain)
    usage = " ".join([command, *(_shown(one) for one in arguments if _is_word(one)), "[OPTIONS]"])
    return f"{' '.join(chain) or command}: {_rule(error, arguments)}\n  It is `{usage}`; `{command} --help` says more."


def _rule(error: CycloptsError, arguments: list[Argument]) -> str:
    match error:
        case UnusedCliTokensError():
            return _surplus(error.unused_tokens or [], arguments)
        case MissingArgumentError() if error.argument and not isinstance(error, ConsumeMultipleError):
            missing = f"{error.keyword} needs a value" if error.keyword else f"{_name(error.argument)} is missing"
            return missing + _help(error.argument)
        case UnknownOptionError() if error.token and (error.token.keyword or "").startswith(_NCCL):
            return _without_effect(error.token.keyword or "", arguments)
        case UnknownOptionError() if error.token and (way := _way_out(error)):
            return f"{error.token.keyword} is no option here: {way}"
        case UnknownOptionError():
            return str(error).replace("Unknown option: ", "there is no option ", 1)
        case CoercionError() if error.msg is None and error.token and error.target_type in _KINDS and error.argument:
            name = error.token.keyword or _name(error.argument)
            return f"{name} {error.token.value!r} is no {_KINDS[error.target_type]}{_help(error.argument)}"
        case ValidationError() if error.exception_message and error.argument and error.argument.tokens:
            token = error.argument.tokens[0]
            return f"{token.keyword or _name(error.argument)} {token.value!r}: {error.exception_message}"
        case _:
            return str(error)


def _way_out(error: UnknownOptionError) -> str | None:
    command = (error.command_chain or ("",))[-1]
    return way_out(command, error.token.keyword or "") if error.token else None


def _without_effect(option: str, arguments: list[Argument]) -> str:
    """A variable of NCCL's environment that is no option of `weft nccl`; others have none at all."""
    from weft.collectives.environment import why_without_effect

    name = option.partition("=")[0]
    taken = sorted(one for argument in arguments for one in argument.names if one.startswith(_NCCL))
    if not taken:
        return f"there is no option {name}; `weft nccl` has those of NCCL"
    near = get_close_matches(name, taken, n=1, cutoff=_NEAR)
    if near:
        return f"there is no option {name}. Did you mean {near[0]}?"
    return f"{name} changes nothing here: {why_without_effect(name.removeprefix('--'))}"


def _surplus(words: list[str], arguments: list[Argument]) -> str:
    """Most often the name of an option was left out."""
    listed = ", ".join(map(repr, words))
    options = [_name(one) for one in arguments if not _is_word(one) and one.hint is not bool and one.show]
    told = ", ".join(options[:_OPTIONS_TOLD]) + (", ..." if len(options) > _OPTIONS_TOLD else "")
    way = f"; a value stands behind its option ({told})" if options else ""
    return f"{listed} {'is one word' if len(words) == 1 else 'are words'} too many{way}"


def _arguments(app: App, chain: list[str]) -> list[Argument]:
    for name in chain:
        app = app[name]
    return list(app.assemble_argument_collection())


def _is_word(argument: Argument) -> bool:
    """Given by its place, without a name."""
    return argument.index is not None


def _name(argument: Argument) -> str:
    return argument.name.lstrip("-").upper() if _is_word(argument) else argument.name


def _shown(argument: Argument) -> str:
    return _name(argument) if argument.required else f"[{_name(argument)}]"


def _help(argument: Argument) -> str:
    said = (argument.parameter.help or "").strip()
    return f": {said[:1].lower()}{said[1:].rstrip('.')}" if said else ""
