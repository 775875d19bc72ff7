"""Build the console before hatchling packs a wheel, which contains it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConsoleHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # a checkout: there `make web` builds it
            return
        sys.path.insert(0, str(Path(self.root) / "web"))
        from build import Unbuilt, build

        try:
            build()
        except Unbuilt as error:
            if os.environ.get("CI"):
                raise
            self.app.display_warning(f"a wheel without the console: {error}")
