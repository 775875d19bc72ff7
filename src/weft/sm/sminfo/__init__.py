"""Elect the master among several subnet managers, and copy its state to standbys."""
