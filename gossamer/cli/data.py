"""`gossamer data`: list, download and verify datasets."""

from pathlib import Path

from cyclopts import App

from gossamer._common.formatting import say

data = App(name="data", help="List, download and verify datasets. Example: gossamer data get fashion-mnist")


@data.command(name="list")
def list_(*, data_dir: Path | None = None, json: bool = False) -> None:
    """List the datasets and where they were found.

    Parameters
    ----------
    data_dir
        Directory to search first, before GOSSAMER_DATA, the cache and the system's datasets.
    json
        Print JSON instead of a table.
    """
    from gossamer._common.formatting import size
    from gossamer.cli.output import print_json, print_table
    from gossamer.data import status

    rows = status(data_dir)
    if json:
        print_json([{"name": r.name, "title": r.title, "folder": r.folder and str(r.folder)} for r in rows])
        return
    found = [
        [
            r.name,
            r.title,
            str(r.folder) if r.folder else f"missing; gossamer data get {r.name} ({size(r.download_size)})",
        ]
        for r in rows
    ]
    print_table(["name", "title", "where"], found, figures=False)


@data.command
def get(name: str, *, data_dir: Path | None = None) -> None:
    """Download a dataset from its official address and verify it; a stopped download continues.

    Parameters
    ----------
    name
        The dataset: fashion-mnist, cifar-10, svhn, mnist or digits.
    data_dir
        Directory to put it in; by default GOSSAMER_DATA or the cache.
    """
    from gossamer.data import get as fetch

    say(f"{name}: {fetch(name, data_dir).folder}")


@data.command
def verify(name: str, *, data_dir: Path | None = None) -> None:
    """Check every file of a dataset against its official checksum.

    Parameters
    ----------
    name
        The dataset.
    data_dir
        Directory to search first.
    """
    from gossamer.data import verify as check

    location = check(name, data_dir)
    say(f"{name}: {len(location.files)} files in {location.folder} are the official ones")
