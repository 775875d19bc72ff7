"""Read the user's defaults: a TOML file with flags by command.

    [route]
    routing-engine = "up-down"
    [scenario.qos]
    seed = 7

The file is $WEFT_DEFAULTS, else ~/.config/weft/defaults.toml. There is no file per folder: results must not depend on
the working directory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import ConfigError, FileError, UnknownName

if TYPE_CHECKING:
    from cyclopts import App, ArgumentCollection

_FIX = "Correct it, or run without defaults: WEFT_DEFAULTS= weft ..."


def find() -> Path | None:
    """Return the path of the file; None if it does not exist or WEFT_DEFAULTS is empty."""
    chosen = os.environ.get("WEFT_DEFAULTS")
    if chosen is not None:
        return Path(chosen) if chosen else None
    default = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "weft/defaults.toml"
    return default if default.exists() else None


def apply(root: App, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Set flags that are not on the command line from the file; cyclopts calls this after parsing."""
    path = find()
    if path is None:
        return
    from cyclopts import CycloptsError
    from cyclopts.config import Dict

    flags = _flags(path, _read(path), root, commands)
    flag_names = [name[2:] for argument in arguments for name in argument.names if name.startswith("--")]
    for key in flags:
        if key not in flag_names:
            raise UnknownName("flag", key, flag_names, f"{path}, [{'.'.join(commands)}]. {_FIX}")
    Dict(flags, source=str(path), use_commands_as_keys=False)(app, commands, arguments)
    for argument in arguments:
        if any(token.source == str(path) for token in argument.tokens):
            try:
                argument.convert_and_validate()
            except CycloptsError as error:
                message = str(error).splitlines()[-1]
                raise ConfigError(f"{path}, [{'.'.join(commands)}]: {message}\n  {_FIX}") from None


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"WEFT_DEFAULTS: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise FileError(path, None, str(error), f"TOML. {_FIX}") from None


def _flags(path: Path, facts: dict[str, Any], level: App, commands: tuple[str, ...]) -> dict[str, Any]:
    """Return the flags of this command; the sections above are names of commands."""
    for depth, command in enumerate(commands):
        for name, below in facts.items():
            is_section = isinstance(below, dict)
            if (is_section and name not in level) or (depth == 0 and not is_section):
                hint = f"{path}: put flags below the name of their command, such as [route]. {_FIX}"
                raise UnknownName("command", name, [command for command in level if command[0] != "-"], hint)
        level, facts = level[command], facts.get(command, {})
    return {name: value for name, value in facts.items() if name not in level}
