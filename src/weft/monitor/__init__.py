"""Is the fabric well: counters of all its ports, what they say of cables, and who else is told.

    poll        a Reading: every counter of every port at one moment, by MADs, over any carrier
    change      what happened between two of them, and what cannot be known
    health      rates of each port: bit errors, flaps, waits
    diagnose    which cable is bad: suspects with evidence in words; signs, chance, causes are its parts

It knows carriers and what was walked, never the lab: it sees of a fabric what its agents say.
"""
