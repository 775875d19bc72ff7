"""Memory that processes share: how queues lie in it, and work that the poster does in it himself."""
