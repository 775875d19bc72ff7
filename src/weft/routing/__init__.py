"""Forwarding tables as pure functions of a fabric, and the proof of what they are worth."""
