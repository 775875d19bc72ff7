"""Files for Prometheus and Grafana that come with weft: `weft monitor --rules` and `--dashboard` print them."""

from __future__ import annotations

from importlib.resources import files

RULES, DASHBOARD = "rules.yml", "dashboard.json"


def read(name: str) -> str:
    return files("weft.monitor").joinpath("prometheus", name).read_text(encoding="utf-8")
