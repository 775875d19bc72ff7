"""Communication management: the messages between queue pairs 1 that set up, refuse and end connections.

agent            queue pair 1 of an adapter: who listens, which conversations there are
conversation     one end of a connection
"""
