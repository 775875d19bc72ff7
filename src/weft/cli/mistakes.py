"""Explain usage errors: the command, the argument, the rule and the usage line.

cyclopts finds the errors; its own messages name neither the command nor the fix.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, get_args

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

from weft.cli.arguments import NO_OPTION
from weft.cli.elsewhere import advice_for_option, advice_for_program

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.argument import Argument

_OPTIONS_LISTED = 6
_NCCL = "--NCCL_"
_SIMILARITY = 0.9
_KINDS = {float: "number", int: "whole number"}


def explain(error: CycloptsError, app: App) -> str:
    """Return the message for a usage error, with the usage line below."""
    chain = list(error.command_chain or ())
    command = " ".join(["weft", *chain])
    error.verbose = False
    if isinstance(error, UnknownCommandError):
        word = next(iter(error.unused_tokens or ()), "")
        advice = advice_for_program(word) if not chain else None
        return f"there is no command {word!r}: {advice}" if advice else f"{error}\n  `{command} --help` lists them."
    arguments = _arguments(app, chain)
    usage = " ".join([command, *(_placeholder(argument) for argument in arguments if _is_positional(argument))])
    message = _explain_argument(error, arguments)
    return f"{' '.join(chain) or command}: {message}\n  Usage: {usage} [OPTIONS] (see --help)"


def _explain_argument(error: CycloptsError, arguments: list[Argument]) -> str:
    match error:
        case UnusedCliTokensError():
            return _explain_surplus(error.unused_tokens or [], arguments)
        case MissingArgumentError() if error.argument and not isinstance(error, ConsumeMultipleError):
            missing = f"{error.keyword} needs a value" if error.keyword else f"{_name(error.argument)} is missing"
            return missing + _help(error.argument)
        case UnknownOptionError() if error.token and (error.token.keyword or "").startswith(_NCCL):
            return _explain_nccl_variable(error.token.keyword or "", arguments)
        case UnknownOptionError() if error.token and (advice := _advice(error, error.token.keyword or "", arguments)):
            return f"there is no option {error.token.keyword}: {advice}"
        case UnknownOptionError():
            return str(error).replace("Unknown option: ", "there is no option ", 1)
        case CoercionError() if error.argument and error.token and error.msg is not None:
            return f"{error.token.keyword or _name(error.argument)}: {error.msg}"
        case CoercionError() if error.token and error.target_type in _KINDS and error.argument:
            name = error.token.keyword or _name(error.argument)
            return f"{name}: {error.token.value!r} is not a {_KINDS[error.target_type]}{_help(error.argument)}"
        case ValidationError() if error.exception_message and error.argument and error.argument.tokens:
            token = error.argument.tokens[0]
            if error.exception_message == NO_OPTION and token.keyword:
                return f"{token.keyword} needs a value before {token.value}"
            if error.exception_message == NO_OPTION:  # an unknown option in the place of a positional argument
                advice = _advice(error, token.value, arguments)
                return f"there is no option {token.value}{f': {advice}' if advice else ''}"
            return f"{token.keyword or _name(error.argument)} {token.value!r}: {error.exception_message}"
        case _:
            return str(error)


def _advice(error: CycloptsError, option: str, arguments: list[Argument]) -> str | None:
    command = (error.command_chain or ("",))[-1]
    return advice_for_option(command, option, [name for argument in arguments for name in argument.names])


def _explain_nccl_variable(option: str, arguments: list[Argument]) -> str:
    """Explain why a variable of NCCL's environment is not an option."""
    from weft.collectives.nccl.environment import why_without_effect

    name = option.partition("=")[0]
    variables = sorted(name for argument in arguments for name in argument.names if name.startswith(_NCCL))
    if not variables:
        return f"there is no option {name}; `weft nccl` has the variables of NCCL as options"
    near = get_close_matches(name, variables, n=1, cutoff=_SIMILARITY)
    if near:
        return f"there is no option {name}. Did you mean {near[0]}?"
    return f"{name} changes nothing here: {why_without_effect(name.removeprefix('--'))}"


def _explain_surplus(words: list[str], arguments: list[Argument]) -> str:
    """Suggest the option whose name was probably left out; list the options if several fit."""
    listed = ", ".join(map(repr, words))
    message = f"unexpected argument{'s' * (len(words) > 1)} {listed}"
    options = [option for option in arguments if not _is_positional(option) and option.hint is not bool and option.show]
    if _is_number(words[0]):
        options = [option for option in options if {option.hint, *get_args(option.hint)} & {*_KINDS}] or options
    names = [_name(option) for option in options]
    if not names:
        return message
    if len(names) == 1 and len(words) == 1:
        return f"{message}; did you mean {names[0]} {words[0]}?"
    more = ", ..." if len(names) > _OPTIONS_LISTED else ""
    return f"{message}; options that take a value: {', '.join(names[:_OPTIONS_LISTED])}{more}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _arguments(app: App, chain: list[str]) -> list[Argument]:
    for name in chain:
        app = app[name]
    return list(app.assemble_argument_collection())


def _is_positional(argument: Argument) -> bool:
    return argument.index is not None


def _name(argument: Argument) -> str:
    return argument.name.lstrip("-").upper() if _is_positional(argument) else argument.name


def _placeholder(argument: Argument) -> str:
    return _name(argument) if argument.required else f"[{_name(argument)}]"


def _help(argument: Argument) -> str:
    text = (argument.parameter.help or "").strip()
    return f": {text[:1].lower()}{text[1:].rstrip('.')}" if text else ""
