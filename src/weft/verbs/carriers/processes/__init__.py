"""Adapters of other processes of this machine."""
