"""libibverbs.so.1 in software: weft's adapter for programs in C.

    program -> libibverbs.so.1 (lib/*.c, compiled on first use) -> call(operation, record) -> Python
                     |                                                                          |
                     +---- rings and paths in shared memory: post, poll; execute's kernel ------+

build         the library, compiled and kept; what a program needs in its environment
start         inside a program: Python gets the library's address, the library what to call
header        what C is told: records, operations, numbers
operations    the list of all of them
identifiers, connections      librdmacm.so.1 (lib/cm): who talks to whom, and events; `program_cmid` are the objects
devices, regions, completions, pairs, sending, addresses      what each call of the library does, by subject
objects       what a program made, by handle
calls         how an operation is declared

Only posting and polling are C; a control verb fills a record and asks Python, which has the objects of `pyverbs`.
To add one: a record and a function here (`@operation(record)`), a C function in lib/ that fills and asks, and its
name in lib/exports.map.
"""
