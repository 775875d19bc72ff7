"""The web console: the drawn fabric, its current state, actions on a lab, and runs.

routes          REST under /api/v1
page            the page itself, from `weft.web`
monitor         polls the fabric and publishes its state
drawn_fabric    a drawing, and the current state of its links
events          state and log events
nodes           a node and its ports, and the path between two hosts
layout          positions of nodes
event_stream    server-sent events
runs            runs of `weft compare` and `weft train`
"""

__all__: list[str] = []
