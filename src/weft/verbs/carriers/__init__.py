"""What joins adapters: within one process, between processes, between machines."""
