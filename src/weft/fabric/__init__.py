"""Cabling: nodes, ports, links, and what a configured fabric carries."""
