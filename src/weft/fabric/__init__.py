"""Cabling: nodes, ports, links, and the tables and counters of a configured fabric."""

__all__ = [
    "build",
    "cabling_warnings",
    "catalog",
    "faults",
    "files",
    "kinds",
    "levels",
    "model",
    "nvlink",
    "prices",
    "rates",
    "spec",
    "summary",
    "tables",
    "topologies",
    "views",
]
