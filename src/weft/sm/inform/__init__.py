"""Receive traps, and send reports to subscribers."""
