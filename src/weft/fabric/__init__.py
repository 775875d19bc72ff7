"""Cabling: nodes, ports, links, and the tables and counters of a configured fabric."""
