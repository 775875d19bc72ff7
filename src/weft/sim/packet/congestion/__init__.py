"""weft's own congestion controls, a file each; `weft.sim.congestion` says what one is."""
