"""The files for Prometheus and Grafana that `weft monitor --rules` and `--dashboard` print."""

from __future__ import annotations

from importlib.resources import files

RULES, DASHBOARD = "rules.yml", "dashboard.json"


def read(name: str) -> str:
    return files("weft.monitor").joinpath("prometheus", name).read_text(encoding="utf-8")
