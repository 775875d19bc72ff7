"""Very many runs: every combination of options and seeds, on local processes or on a Ray cluster, in one table."""
