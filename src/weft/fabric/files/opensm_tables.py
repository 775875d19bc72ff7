"""Tables of a running OpenSM from its dumps, into a fabric."""

from __future__ import annotations

from pathlib import Path

from weft.errors import ConfigError, FileError
from weft.fabric.files.opensm import apply_guid2lid, read_fdbs, read_guid2lid, read_lfts, read_subnet_lids
from weft.fabric.files.opensm_vls import read_vls
from weft.fabric.files.text import peek
from weft.fabric.model import Fabric

_ROUTES = ("opensm.fdbs", "opensm-lfts.dump")


def read_tables(path: Path, fabric: Fabric) -> bool:
    """Fill a fabric's tables from a routes file or a directory with one; return whether virtual lanes were read too.

    LIDs come from guid2lid in the directory, which OpenSM keeps in OSM_CACHE_DIR, not where it dumps; else from
    opensm-subnet.lst; else from the fabric. Lanes come from opensm.psl and opensm.slvl in the directory, which weft
    writes and OpenSM does not.
    """
    source = path
    if path.is_dir():
        routes = [path / name for name in _ROUTES if (path / name).is_file()]
        if not routes:
            raise FileError(path, None, "a directory without routes", f"{' or '.join(_ROUTES)} in it")
        if (path / "guid2lid").is_file():
            apply_guid2lid(fabric, read_guid2lid(path / "guid2lid"))
        elif (path / "opensm-subnet.lst").is_file() and not fabric.tables.lid.any():
            apply_guid2lid(fabric, read_subnet_lids(path / "opensm-subnet.lst"))
        path = routes[0]
    if path.is_file() and not fabric.tables.lid.any():
        raise ConfigError(
            f"{path} has routes by LID, but neither {fabric.spec} nor a file beside it has the LIDs of ports"
            "\n  Put guid2lid (it is in OSM_CACHE_DIR) or opensm-subnet.lst into the folder and give that, "
            "or give opensm-subnet.lst as SPEC."
        )
    with peek(path, 4096) as head:
        (read_fdbs if b"dump_ucast_routes" in head else read_lfts)(path, fabric)
    for name in ("path_sl", "sl2vl"):
        vars(fabric.tables).pop(name, None)
    return source.is_dir() and read_vls(source, fabric)
