"""Plan a cluster: fabric, racks, cables and price for a number of GPUs; audit a built fabric against its plan.

A module imports only modules below its own; `tests/test_structure.py` reads this list and enforces it. Parts are in the
catalog, prices in its prices.toml and the user's own file, the room in `floor.room`.

folder     a plan as a folder of files
report     a plan as an HTML page
elevation  racks from the front
pictures   the floor from above
looks      common parts of both pictures
plan       the whole plan: size, racks, cables, bill, upkeep
candidates  topologies side by side
growth/    from today's fabric to a larger one, in steps without an outage
audit/     a built fabric compared with its plan, as a walk
site       the parts of a plan besides its fabric
phases     dates on which parts of a plan run: bills and orders
networks   storage and management networks in the racks of a plan
spares     spare parts by failure rates
power      feeds, PDUs and cooling of racks
neighbours  a note where one more server costs less
serving    the servers that a served model needs, and their traffic
north_south  the storage and management networks that it needs
upkeep     electricity, years of use, and the cost of training tokens
optimise   better positions for switches
search     the kernel of `optimise`
quote      a vendor's quote compared with the bill
bill       price and power
floor/     the room, racks, cables and their routes, parts to order
size       from a request to a fabric with its tiers and cables
request    the user's request
"""

__all__ = ["audit", "bill", "floor", "folder", "growth", "optimise", "plan", "request", "size", "upkeep"]
