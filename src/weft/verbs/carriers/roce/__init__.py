"""RoCE v2 over UDP."""
