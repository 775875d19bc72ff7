"""Forwarding tables as pure functions of a fabric, and the proof of what they are worth."""

# Engines as OpenSM calls them.
OPENSM_ENGINES = {"minhop": "min-hop", "updn": "up-down", "ftree": "fat-tree", "dor": "dimension-order"}
