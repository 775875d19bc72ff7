"""weft's own adaptive-routing policies, a file each; `weft.sim.adaptive` says what one is."""
