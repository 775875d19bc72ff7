"""One example of each kind of plugin; pyproject.toml lists the module of each."""
