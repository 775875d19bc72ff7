"""All operations, in the order of their numbers."""

from weft.verbs.c import addresses, connections, devices, identifiers, objects, pairs, regions, sending

SUBJECTS = (objects, devices, regions, addresses, pairs, sending, identifiers, connections)
