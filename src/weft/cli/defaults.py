"""One's own defaults: a TOML file with flags by command.

    [route]
    engine = "up-down"
    [scenario.qos]
    seed = 7

It is $WEFT_DEFAULTS, else ~/.config/weft/defaults.toml. A folder has none: figures would depend on where one stands.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import ConfigError, FileError, UnknownName

if TYPE_CHECKING:
    from cyclopts import App, ArgumentCollection

_WITHOUT = "Mend it, or do without it: WEFT_DEFAULTS= weft ..."


def find() -> Path | None:
    """The file; None if there is none, or if nobody wants one."""
    named = os.environ.get("WEFT_DEFAULTS")
    if named is not None:
        return Path(named) if named else None
    usual = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "weft/defaults.toml"
    return usual if usual.exists() else None


def apply(root: App, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Give flags that are not on the command line what the file says; cyclopts calls it once the words are parsed."""
    path = find()
    if path is None:
        return
    from cyclopts import CycloptsError
    from cyclopts.config import Dict

    flags = _flags(path, _read(path), root, commands)
    known = [name[2:] for argument in arguments for name in argument.names if name.startswith("--")]
    for key in flags:
        if key not in known:
            raise UnknownName("flag", key, known, f"{path}, [{'.'.join(commands)}]. {_WITHOUT}")
    Dict(flags, source=str(path), use_commands_as_keys=False)(app, commands, arguments)
    for argument in arguments:
        if any(token.source == str(path) for token in argument.tokens):
            try:
                argument.convert_and_validate()
            except CycloptsError as error:
                said = str(error).splitlines()[-1]
                raise ConfigError(f"{path}, [{'.'.join(commands)}]: {said}\n  {_WITHOUT}") from None


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"WEFT_DEFAULTS: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise FileError(path, None, str(error), f"TOML. {_WITHOUT}") from None


def _flags(path: Path, facts: dict[str, Any], level: App, commands: tuple[str, ...]) -> dict[str, Any]:
    """Those of this command; above them stand names of commands."""
    for depth, command in enumerate(commands):
        for name, below in facts.items():
            is_section = isinstance(below, dict)
            if (is_section and name not in level) or (depth == 0 and not is_section):
                hint = f"{path}: flags stand below the name of their command, [route] say. {_WITHOUT}"
                raise UnknownName("command", name, [one for one in level if one[0] != "-"], hint)
        level, facts = level[command], facts.get(command, {})
    return {name: value for name, value in facts.items() if name not in level}
