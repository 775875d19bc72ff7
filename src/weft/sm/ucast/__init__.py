"""Unicast: LIDs, forwarding tables, groups for adaptive routing, and the order in which they are written."""
