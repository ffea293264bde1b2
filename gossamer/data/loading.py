"""Datasets by name: load one, fetch one, check one, list them all."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from gossamer.data import locate
from gossamer.data.catalog import CATALOG, Entry
from gossamer.data.checksums import file_has
from gossamer.data.datasets import Dataset
from gossamer.data.download import OnProgress, fetch, only_one_process, progress_bar
from gossamer.data.locate import Location, PathLike
from gossamer.errors import GossamerError, InputError, unknown


@dataclass(frozen=True)
class Status:
    """One line of the list of datasets: where it was found (None: not on this machine) and what a download costs."""

    name: str
    title: str
    folder: Path | None
    download_size: int


def load(name: str, data_dir: PathLike | None = None, verify: bool | None = None, download: bool = False) -> Dataset:
    """The dataset `name`: "fashion-mnist", "cifar-10", "svhn", "mnist" or "digits" (which needs no files).

    The official files are looked for in `data_dir`, in the directory named by GOSSAMER_DATA, in the user's cache (in
    each, both directly and in a folder named like the dataset) and in the operating system's package (Debian's
    dataset-fashion-mnist). `download=True` fetches a missing dataset into the first of these directories that you
    named, or else into the cache. A file whose checksum is not the official one is refused unless `verify=False`, or
    the environment says GOSSAMER_VERIFY=0 and `verify` is not given.

    >>> load("digits")
    Dataset 'digits': 1,442 training and 355 test samples of shape 1x8x8 (torch.uint8), 10 classes
    """
    entry = _entry(name)
    location = locate.find(entry, data_dir)
    if location is None and download:
        location = get(name, data_dir)
    if location is None:
        raise locate.missing(entry, data_dir)
    checked = locate.wants_checksums() if verify is None else verify
    tensors = entry.decode(locate.read(location, checked, data_dir))
    for part in (tensors.train_inputs, tensors.test_inputs):
        if tuple(part.shape[1:]) != entry.sample_shape:
            raise InputError(
                f"{location.folder} holds samples of shape {list(part.shape[1:])} where {name} has "
                f"{list(entry.sample_shape)}; these are the files of another dataset."
            )
    return Dataset(name, *tensors, entry.classes, entry.normalization, entry.augmentation)


def get(name: str, data_dir: PathLike | None = None, on_progress: OnProgress | None = None) -> Location:
    """Make sure that the dataset is on this machine and intact, downloading what is not; returns where it is.

    Progress is shown as a bar on a terminal, or reported to `on_progress`. A stopped download continues where it
    stopped. Several processes may call this at once: one downloads, the others wait.

    >>> get("digits").name
    'digits'
    """
    entry = _entry(name)
    location = locate.find(entry, data_dir)
    if entry.packaged is not None:
        return verify(name)
    if location is not None and _intact(location):
        return location
    folder = locate.download_folder(entry, data_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with only_one_process(folder), nullcontext(on_progress) if on_progress else progress_bar() as report:
            for file in entry.published:
                target = folder / file.name
                if not (target.exists() and file_has(file.checksum, target)):
                    fetch(file.addresses, target, file.checksum, report)
    except OSError as error:
        raise InputError(f"Cannot write {name} into {folder} ({error}); choose another data directory.") from error
    return verify(name, data_dir)


def verify(name: str, data_dir: PathLike | None = None) -> Location:
    """Check every file of the dataset against its official checksum; returns where they are, or says what is wrong.

    >>> sorted(verify("digits").files)
    ['images-idx3-ubyte', 'labels-idx1-ubyte']
    """
    entry = _entry(name)
    location = locate.find(entry, data_dir)
    if location is None:
        raise locate.missing(entry, data_dir)
    locate.read(location, verify=True, data_dir=data_dir)
    return location


def status(data_dir: PathLike | None = None) -> list[Status]:
    """Every known dataset and where it is, without reading the files.

    >>> [line.name for line in status()]
    ['fashion-mnist', 'cifar-10', 'svhn', 'mnist', 'digits']
    """
    found = ((entry, locate.find(entry, data_dir)) for entry in CATALOG.values())
    return [
        Status(entry.name, entry.title, location.folder if location else None, entry.download_size)
        for entry, location in found
    ]


def _entry(name: object) -> Entry:
    if not isinstance(name, str):
        raise InputError(
            f"A dataset is found by its name, such as 'digits', not by an object of type {type(name).__name__}; make "
            "one of your own tensors with gossamer.data.Dataset.from_tensors(inputs, targets)."
        )
    if name not in CATALOG:
        raise unknown("dataset", name, CATALOG)
    return CATALOG[name]


def _intact(location: Location) -> bool:
    try:
        locate.read(location, verify=True)
    except GossamerError:
        return False
    return True
