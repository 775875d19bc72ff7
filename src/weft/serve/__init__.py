"""The rooms below as a service: REST, tokens with roles, an audit log, a database.

embedded         a UFM for a test: a lab of its own, and the service on it
server           the door: a socket, TLS
app, page        the routes together, behind the gate; a page of them for people
api/             our own REST under /api/v1
ufm/             UFM's REST
actions            ports of a lab switched, its cables pulled
faults           trouble on request
watcher          who tried to get across
gate             who comes in, with how much, how often
access           tokens, users, roles
ledger           one writer: the database and the fabric change together, or not at all
drift            how the fabric differs from the ledger
store            the database
desired          what the ledger holds
"""
