"""Provide libibverbs.so.1 and librdmacm.so.1: weft's adapter for programs in C.

    program -> libibverbs.so.1 (lib/*.c, compiled on first use) -> call(operation, record) -> Python
                     |                                                                          |
                     +---- rings and paths in shared memory: post, poll; execute's kernel ------+

build         compile the libraries once
start         connect Python and the library inside a program
header        write the C header: records, operations, numbers
operations    the list of all of them
identifiers, connections      librdmacm.so.1 (lib/cm): connections and events; `program_cmid` has the objects
devices, regions, completions, pairs, sending, addresses      the operations by subject
objects       the objects of a program by handle
calls         the declaration of operations

Only posting and polling are C; a control verb fills a record and asks Python, which has the objects of `pyverbs`.
To add one: a record and a function here (`@operation(record)`), a C function in lib/ that fills and asks, and its
name in lib/exports.map.
"""

__all__: list[str] = []
