"""All operations, in the order of their numbers."""

from weft.verbs.c import (
    addresses,
    completions,
    connections,
    devices,
    identifiers,
    objects,
    pairs,
    regions,
    sending,
)

SUBJECTS = (objects, devices, regions, completions, addresses, pairs, sending, identifiers, connections)
