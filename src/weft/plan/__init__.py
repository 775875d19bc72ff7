"""What to buy and where to put it: a fabric of so many GPUs, its racks, cables and price; what stands against its plan.

A room imports only from rooms below its own; `tests/test_house.py` reads this list and enforces it. One fact, one
place: parts are in the catalog, prices in its prices.toml and the user's own file, the room in `floor.room`.

folder     a plan as files
report     a plan as a page
elevation  racks from the front
pictures   the floor from above
looks      what both pictures share
plan       all of it: size, racks, cables, bill, upkeep
growth/    from today to a larger fabric, in steps without an outage
audit/     what stands against its plan, as a walk
upkeep     electricity, years, and dollars for tokens
optimise   better places for switches
search     the kernel of that
bill       what it costs and draws
floor/     the room, racks, cables and their ways, what to order
size       from a request to a fabric, its tiers and its cables
request    what is asked for
"""
