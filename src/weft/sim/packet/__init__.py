"""The packet engine: InfiniBand's link layer in time, and RoCE, TCP and Omni-Path by other rules of the same engine."""
