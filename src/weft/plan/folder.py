"""A plan as a folder of files.

fabric.yaml     a lab file, for every command of weft
bill.csv        parts to order
cables.csv      every cable with its labels, racks and length
cables.ndt      the same for UFM
floor.svg, racks/row-A.svg, fabric.svg
power.csv       feeds, PDUs and cooling of each rack
spares.csv, phases.csv, quotes.csv, storage-bill.csv, storage-cables.csv, management-bill.csv, management-cables.csv
report.html     everything on one page
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
from weft.plan.phases import to_csv as phases_to_csv
from weft.plan.pictures import draw_floor
from weft.plan.plan import Plan
from weft.plan.power import to_csv as power_to_csv
from weft.plan.quote import to_csv as quotes_to_csv
from weft.plan.report import to_html
from weft.plan.site import Site
from weft.plan.size import Size
from weft.plan.spares import to_csv as spares_to_csv

FILES = (
    *("fabric.yaml", "bill.csv", "cables.csv", "cables.ndt", "floor.svg", "fabric.svg", "report.html", "plan.json"),
    *("racks", "power.csv"),
)
SITE_FILES = (  # those that a plan has if they were wished for
    *("spares.csv", "phases.csv", "quotes.csv"),
    *(f"{network}-{file}.csv" for network in ("storage", "management") for file in ("bill", "cables")),
)
_ROW = re.compile(r"row-[A-Z]+\.svg")


def default_name(size: Size) -> str:
    """Return `plan-dgx-h100-1024` for a request; for a spec or a file `plan-` and its name."""
    request = size.request
    name = f"{request.template.name}-{request.amount}" if request else Path(size.spec).name
    return "plan-" + (re.sub(r"[^\w.+-]+", "-", name).strip("-") or "fabric")  # for standard input


def check_folder(path: Path) -> None:
    """Refuse to replace anything but a folder with a plan and no other files."""
    if not path.exists() and not path.is_symlink():
        if not path.parent.is_dir():
            raise ConfigError(f"cannot write {path}: no such folder {path.parent}")
        return
    way_out = "give another --folder NAME"
    if not path.is_dir() or path.is_symlink():
        raise ConfigError(f"{path} exists and is not a folder; {way_out}")
    within = [entry for entry in path.iterdir() if entry.name not in (*FILES, *SITE_FILES)]
    within += [entry for entry in (path / "racks").glob("*") if not _ROW.fullmatch(entry.name)]
    if within:
        raise ConfigError(f"{path} has {within[0].relative_to(path)}, which is not part of a plan; {way_out}")
    if any(path.iterdir()) and not (path / "plan.json").is_file():
        raise ConfigError(f"{path} exists and has no plan.json, so it is not a plan; {way_out}")


def write_folder(plan: Plan, path: Path | str, progress: Callable[[str], None] = lambda message: None) -> list[Path]:
    """Write all files of a plan and return them; an older plan stays until the new one is complete."""
    path = Path(path)
    check_folder(path)
    new = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        _write(plan, new, progress)
        os.chmod(new, 0o777 & ~_umask())
        _swap(new, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return sorted(file for file in path.rglob("*") if file.is_file())


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
    for name, text in site_files(plan.site).items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "report.html").write_text(to_html(plan), encoding="utf-8")
    (folder / "plan.json").write_text(json.dumps(plan.report(), indent=2, default=str) + "\n", encoding="utf-8")


def site_files(site: Site) -> dict[str, str]:
    """Return the texts of the files of a site, by name."""
    texts = {"power.csv": power_to_csv(site.supplies)}
    if site.spares:
        texts["spares.csv"] = spares_to_csv(site.spares)
    if site.phases:
        texts["phases.csv"] = phases_to_csv(site.phases)
    if site.quotes:
        texts["quotes.csv"] = quotes_to_csv(site.quotes)
    for network in site.networks:
        texts[f"{network.name}-bill.csv"] = bill_to_csv(network.bill)
        texts[f"{network.name}-cables.csv"] = to_csv(network.cabling)
    return texts


def _swap(new: Path, path: Path) -> None:
    """Rename `new` to `path`; remove the old folder only after the new one is in place."""
    if not path.exists():
        new.rename(path)
        return
    old = new.with_name(f"{new.name}.old")
    path.rename(old)
    try:
        new.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
