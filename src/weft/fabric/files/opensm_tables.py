"""The tables of a running OpenSM, whichever of its dumps there are, into a fabric."""

from __future__ import annotations

from pathlib import Path

from weft.errors import FileError
from weft.fabric.files.opensm import apply_guid2lid, read_fdbs, read_guid2lid, read_lfts
from weft.fabric.files.text import first_look
from weft.fabric.model import Fabric

_ROUTES = ("opensm.fdbs", "opensm-lfts.dump")


def read_tables(path: Path, fabric: Fabric) -> None:
    """Fill a fabric's tables from a file of routes, or from a directory with one and, if need be, guid2lid.

    Without guid2lid the LIDs are those that the fabric has.
    """
    if path.is_dir():
        found = [path / name for name in _ROUTES if (path / name).is_file()]
        if not found:
            raise FileError(path, None, "a directory without routes", f"{' or '.join(_ROUTES)} in it, as OpenSM writes")
        if (path / "guid2lid").is_file():
            apply_guid2lid(fabric, read_guid2lid(path / "guid2lid"))
        path = found[0]
    with first_look(path, 4096) as head:
        (read_fdbs if b"dump_ucast_routes" in head else read_lfts)(path, fabric)
