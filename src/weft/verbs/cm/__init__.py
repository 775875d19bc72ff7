"""Implement communication management: the messages between queue pairs 1 that set up, refuse and end connections.

agent            queue pair 1 of an adapter: its listeners and connections
connection       one end of a connection
services         ports and services in use on this machine
"""

__all__: list[str] = []
