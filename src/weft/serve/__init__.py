"""The rooms below as a service: REST, tokens with roles, an audit log, a database.

app              the routes together, behind the gate
api/             our own REST under /api/v1
gate, limits     who comes in, with how much, how often
access           tokens, users, roles
ledger           one writer: the database and the fabric change together, or not at all
store            the database
desired          what the ledger holds
"""
