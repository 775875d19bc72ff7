"""Parameter studies: every combination of options and seeds, on local processes or a Ray cluster, in one table.

    conduct      a study from its first run to its table
    grid         the runs: a command line, and lists of values for it
    journal      completed runs, so that a study can be resumed
    pools        processes of this machine, or of a Ray cluster
    worker       the main function of such a process
    table        CSV or Parquet

The caller names the function that performs a run, `module:function`; a worker imports it. It takes the words of a
command line and returns rows.
"""

__all__ = ["conduct", "grid"]
