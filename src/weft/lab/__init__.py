"""THE RUNNING THING: a fabric whose switches and adapters answer MADs, and programs of others on its hosts.

`lab` is it; `ibsim` serves programs that come through libumad2sim, `attach` those that come through weft's own preload;
`programs` starts them; `daemon`, `registry`, `control` and `commands` make a process of it that can be spoken to.
"""
