"""The rooms below as a service: REST, tokens with roles, an audit log, a database."""
