"""One of each thing that weft lets others add; pyproject.toml says which module has which."""
