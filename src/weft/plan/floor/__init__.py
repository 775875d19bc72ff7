"""The room, what stands where in it, every cable and its way, and what to order."""
