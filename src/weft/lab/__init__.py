"""A running fabric: switches and adapters that answer MADs, and programs on its hosts.

`lab` is its class; `ibsim` serves programs that attach through libumad2sim, `attach` those that use weft's own preload;
`programs` starts them; `daemon`, `registry`, `control` and `commands` run a lab as a process that accepts commands.
"""

__all__ = ["lab", "subnets"]
