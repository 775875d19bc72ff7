"""Very many runs: every combination of options and seeds, on local processes or on a Ray cluster, in one table.

    conduct      a study from its first run to its table
    grid         what is run: a command line, and lists of values for it
    journal      what has run already, whatever ended the study
    local        processes of this machine
    cluster      those of a Ray cluster
    worker       what happens in such a process
    table        CSV or Parquet

What a run is, the caller says by a name, `module:function`, that a worker imports: it takes the words of a command line
and returns the rows that this gives.
"""
