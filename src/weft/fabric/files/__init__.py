"""Files of the real world: read, written, or both."""
