"""Ports of a lab."""
