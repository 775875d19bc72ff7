"""A plan as a folder: the fabric as a file, the bill, the cables, pictures, a page.

fabric.yaml     a lab file: every command of weft takes it
bill.csv        what to order
cables.csv      every cable with its labels, racks and length
cables.ndt      the same for UFM
floor.svg, racks/row-A.svg, fabric.svg
report.html     all of it on a page
plan.json       all figures
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from weft.draw import draw
from weft.errors import ConfigError
from weft.fabric import files
from weft.plan.bill import to_csv as bill_to_csv
from weft.plan.elevation import draw_row, row_file
from weft.plan.floor.schedule import to_csv, to_ndt
from weft.plan.pictures import draw_floor
from weft.plan.plan import Plan
from weft.plan.report import to_html
from weft.plan.size import Size

FILES = (
    *("fabric.yaml", "bill.csv", "cables.csv", "cables.ndt", "floor.svg", "fabric.svg", "report.html", "plan.json"),
    "racks",
)
_ROW = re.compile(r"row-[A-Z]+\.svg")


def default_name(size: Size) -> str:
    """`plan-dgx-h100-1024`; of a spec or a file, `plan-` and its name."""
    request = size.request
    said = f"{request.template.name}-{request.amount}" if request else Path(size.spec).name
    return "plan-" + (re.sub(r"[^\w.+-]+", "-", said).strip("-") or "fabric")  # of standard input


def check_folder(path: Path) -> None:
    """Refuse what a plan must not replace: anything but a folder that holds a plan and nothing else."""
    if not path.exists() and not path.is_symlink():
        if not path.parent.is_dir():
            raise ConfigError(f"cannot write {path}: there is no folder {path.parent}")
        return
    way_out = "give another name, --folder NAME"
    if not path.is_dir() or path.is_symlink():
        raise ConfigError(f"{path} is there and is no folder: {way_out}")
    within = [one for one in path.iterdir() if one.name not in FILES]
    within += [one for one in (path / "racks").glob("*") if not _ROW.fullmatch(one.name)]
    if within:
        raise ConfigError(f"{path} has {within[0].relative_to(path)}, which no plan has: {way_out}")
    if any(path.iterdir()) and not (path / "plan.json").is_file():
        raise ConfigError(f"{path} is there and holds no plan.json, so it is no plan: {way_out}")


def write_folder(plan: Plan, path: Path | str, progress: Callable[[str], None] = lambda what: None) -> list[Path]:
    """All of it, or nothing: an older plan of that name stays until the new one is whole. Returns what was written."""
    path = Path(path)
    check_folder(path)
    made = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        _write(plan, made, progress)
        os.chmod(made, 0o777 & ~_umask())
        _swap(made, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return sorted(one for one in path.rglob("*") if one.is_file())


def _write(plan: Plan, folder: Path, progress: Callable[[str], None]) -> None:
    progress("writing the fabric")
    (folder / "fabric.yaml").write_text(files.to_text(plan.cabling.fabric, "lab"), encoding="utf-8")
    progress("writing the bill and the cables")
    (folder / "bill.csv").write_text(bill_to_csv(plan.bill), encoding="utf-8")
    (folder / "cables.csv").write_text(to_csv(plan.cabling), encoding="utf-8")
    (folder / "cables.ndt").write_text(to_ndt(plan.cabling), encoding="utf-8")
    progress("drawing")
    draw_floor(plan.cabling, folder / "floor.svg")
    draw(plan.cabling.fabric, folder / "fabric.svg")
    (folder / "racks").mkdir()
    for row in np.unique(plan.racks.row).tolist():
        draw_row(plan.racks, row, folder / row_file(row))
    (folder / "report.html").write_text(to_html(plan), encoding="utf-8")
    (folder / "plan.json").write_text(json.dumps(plan.report(), indent=2, default=str) + "\n", encoding="utf-8")


def _swap(made: Path, path: Path) -> None:
    """`made` becomes `path`; what was there goes only when the new one is in its place."""
    if not path.exists():
        made.rename(path)
        return
    old = made.with_name(f"{made.name}.old")
    path.rename(old)
    try:
        made.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
