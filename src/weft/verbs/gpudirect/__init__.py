"""Memory of GPUs, registered and moved like any other."""
