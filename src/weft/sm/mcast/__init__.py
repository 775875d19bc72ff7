"""Multicast: groups, their LIDs and their trees."""
