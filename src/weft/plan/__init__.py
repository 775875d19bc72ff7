"""What to buy and where to put it: a fabric of so many GPUs, its racks, cables and price; what stands against its plan.

    request -> size -> racks -> cables -> bill -> a folder

One fact, one place: parts are in the catalog, prices in its prices.toml and the user's own file, the room in `Room`.
"""
