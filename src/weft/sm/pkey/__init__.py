"""Partitions: who is in them, the P_Key tables that follow, and their way into the ports."""
