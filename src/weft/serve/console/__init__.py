"""What a browser needs: the fabric to draw, what changes in it, actions on a lab, runs.

routes      under /api/v1
page        the page itself, as `weft.web` has it
monitor       a monitor of its own, and what it saw in the order of what is drawn
drawn       a picture, and what its links do now
news        what changes, and what of it is worth a line
nodes       one node and its ports
ways        the way between two hosts
picture     where nodes stand
live        one story for all who listen
runs        `weft compare` and `weft train` beside the service
"""
