"""The service: REST interfaces, tokens with roles, an audit log, and a database.

embedded             a UFM for tests: its own lab with the service
server               the HTTP server: socket, TLS
app, page            all routes, and an HTML page of the API
api/                 weft's REST interface under /api/v1
ufm/                 UFM's REST interface
console/             the web console
past/                the history of the fabric
fabric_actions       disable ports and disconnect cables of a lab
faults               injected faults
violation_watcher    P_Key violations
gate                 authentication, rate limits, size limits
access               tokens, users, roles
acknowledgements     acknowledged alarms
ledger               the single writer, which changes the database and the fabric together
drift                differences between the fabric and the ledger
store                the database
desired              the desired state in the ledger
"""

__all__ = ["embedded"]
