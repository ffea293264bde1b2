"""Datasets by name: find the official files on this machine, download what is missing, check and read them.

Files are searched in this order: the `data_dir` argument, the directory in GOSSAMER_DATA, the user's cache, the folder
of the operating system's package (Debian has one for Fashion-MNIST). The first complete set of files counts, and only
that one: a damaged set is reported, never silently replaced by a copy found further down. A download goes where it is
found first, ahead of the system's files, which a user cannot repair.
"""

import gzip
import os
import shlex
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from gossamer._common.checks import normalized
from gossamer.data.catalog import CATALOG, CatalogEntry
from gossamer.data.datasets import Dataset
from gossamer.data.download import OnProgress, fetch, only_one_process, progress_bar
from gossamer.data.readers import Content, damaged, has_checksum
from gossamer.errors import DiskError, GossamerError, InputError, unknown

VARIABLE = "GOSSAMER_DATA"
VERIFY = "GOSSAMER_VERIFY"
PathLike = str | os.PathLike[str]

OWN: dict[str, Callable[[], Dataset]] = {}
"""Datasets that users have registered, by name."""


def register(name: str) -> Callable[[Callable[[], Dataset]], Callable[[], Dataset]]:
    """Make a function that returns a `Dataset` known by `name`, to `load` and to experiments.

    A decorator: `@gossamer.data.register("houses")`. Experiments find the dataset in a file given as `--load FILE`.
    """
    if normalized(name) in CATALOG:
        raise InputError(f"The dataset '{name}' is built in; choose another name.")

    def keep(make: Callable[[], Dataset]) -> Callable[[], Dataset]:
        OWN[normalized(name)] = make
        return make

    return keep


@dataclass(frozen=True)
class Location:
    """A complete set of files: the dataset, the folder, and which file on disk holds each unpacked file."""

    name: str
    folder: Path
    files: Mapping[str, Path]


@dataclass(frozen=True)
class Status:
    """One line of the list of datasets: where it was found (None: not on this machine) and what a download costs."""

    name: str
    title: str
    folder: Path | None
    download_size: int


def load(name: str, data_dir: PathLike | None = None, verify: bool | None = None, download: bool = False) -> Dataset:
    """The dataset `name`: "fashion-mnist", "cifar-10", "svhn", "mnist" or "digits" (which needs no files).

    The official files are searched in `data_dir`, in the directory named by GOSSAMER_DATA, in the user's cache (in
    each, both directly and in a folder named like the dataset) and in the operating system's package (Debian's
    dataset-fashion-mnist). `download=True` fetches a missing dataset into the first of these directories that you
    named, or else into the cache. A file whose checksum is not the official one is refused unless `verify=False`, or
    `verify` is not given and the environment has GOSSAMER_VERIFY=0.

    >>> load("digits")
    Dataset 'digits': 1,442 training and 355 test samples of shape 1x8x8 (torch.uint8), 10 classes
    """
    if isinstance(name, str) and normalized(name) in OWN:
        made = OWN[normalized(name)]()
        if not isinstance(made, Dataset):
            raise InputError(f"The function of the dataset '{name}' must return a Dataset, not {type(made).__name__}.")
        return replace(made, name=normalized(name))
    entry = _entry(name)
    location = find(entry, data_dir)
    if location is None and download:
        location = get(name, data_dir)
    if location is None:
        raise missing(entry, data_dir)
    checked = _verify_by_default() if verify is None else verify
    tensors = entry.decode(_read(location, checked, data_dir))
    for part in (tensors.train_inputs, tensors.test_inputs):
        if tuple(part.shape[1:]) != entry.sample_shape:
            raise InputError(
                f"{location.folder} holds samples of shape {list(part.shape[1:])} where {entry.name} has "
                f"{list(entry.sample_shape)}; these are the files of another dataset."
            )
    return Dataset(entry.name, *tensors, entry.classes, entry.normalization, entry.augmentation)


def get(name: str, data_dir: PathLike | None = None, on_progress: OnProgress | None = None) -> Location:
    """Make sure that the dataset is on this machine and intact, downloading what is not; returns where it is.

    Progress is shown as a bar on a terminal, or reported to `on_progress`. A stopped download continues where it
    stopped. Several processes may call this at once: one downloads, the others wait.

    >>> get("digits").name
    'digits'
    """
    entry = _entry(name)
    location = find(entry, data_dir)
    if entry.packaged is not None:
        return verify(name)
    if location is not None and _intact(location):
        return location
    folder = _download_folder(entry, data_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with only_one_process(folder), nullcontext(on_progress) if on_progress else progress_bar() as report:
            for file, (checksum, _) in entry.published.items():
                target = folder / file
                if not (target.exists() and has_checksum(target, checksum)):
                    fetch([address + file for address in entry.addresses], target, checksum, report)
    except GossamerError:
        raise
    except OSError as error:
        raise DiskError(f"Cannot write {entry.name} into {folder} ({error}); choose another data directory.") from error
    return verify(name, data_dir)


def verify(name: str, data_dir: PathLike | None = None) -> Location:
    """Check every file of the dataset against its official checksum; returns where the files are.

    >>> sorted(verify("digits").files)
    ['images-idx3-ubyte', 'labels-idx1-ubyte']
    """
    entry = _entry(name)
    location = find(entry, data_dir)
    if location is None:
        raise missing(entry, data_dir)
    _read(location, verify=True, data_dir=data_dir)
    return location


def status(data_dir: PathLike | None = None) -> list[Status]:
    """Every known dataset and where it is, without reading the files.

    >>> [line.name for line in status()]
    ['fashion-mnist', 'cifar-10', 'svhn', 'mnist', 'digits']
    """
    found = ((entry, find(entry, data_dir)) for entry in CATALOG.values())
    return [
        Status(entry.name, entry.title, location.folder if location else None, entry.download_size)
        for entry, location in found
    ]


def find(entry: CatalogEntry, data_dir: PathLike | None) -> Location | None:
    """The first complete set of files, or None."""
    for folder in _candidate_folders(entry, data_dir):
        files = _files_in(folder, entry)
        if len(files) == len(entry.contents):
            return Location(entry.name, folder, files)
    return None


def missing(entry: CatalogEntry, data_dir: PathLike | None) -> InputError:
    """The error for a dataset that was not found: what to run, where to put files by hand, what is incomplete."""
    message = f"The dataset {entry.name} is not on this machine; {_remedy(entry, data_dir)}"
    if entry.packaged is not None:
        return InputError(f"{message}.")
    folder = _download_folder(entry, data_dir)
    message += f", or put {', '.join(entry.published)} into {folder}, or set {VARIABLE} to the directory that has them."
    for tried in _candidate_folders(entry, data_dir):
        if files := _files_in(tried, entry):
            lacking = ", ".join(name for name in entry.contents if name not in files)
            return InputError(f"{message} ({tried} has only a part of it and lacks {lacking}.)")
    return InputError(message)


def cache_dir() -> Path:
    """The user's cache: $XDG_CACHE_HOME/gossamer, or ~/.cache/gossamer."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gossamer"


def _entry(name: object) -> CatalogEntry:
    if not isinstance(name, str):
        raise InputError(
            f"A dataset is found by its name, such as 'digits', not by an object of type {type(name).__name__}; make "
            "one of your own tensors with gossamer.data.Dataset.from_tensors(inputs, targets)."
        )
    if normalized(name) not in CATALOG:
        raise unknown("dataset", name, {**CATALOG, **OWN})
    return CATALOG[normalized(name)]


def _given_dirs(data_dir: PathLike | None) -> list[Path]:
    """The directories the user named, by argument and by environment variable, the argument first."""
    if data_dir is not None and not isinstance(data_dir, str | os.PathLike):
        raise InputError(f"data_dir is the path of a directory, or None to leave it open, not {data_dir!r}.")
    named = (data_dir, os.environ.get(VARIABLE))
    return [Path(directory).expanduser() for directory in named if directory]


def _download_folder(entry: CatalogEntry, data_dir: PathLike | None) -> Path:
    """Where a download of this dataset goes, which is also the first place to be searched."""
    return [*_given_dirs(data_dir), cache_dir()][0] / entry.folders[0]


def _candidate_folders(entry: CatalogEntry, data_dir: PathLike | None) -> list[Path]:
    """Every folder that may hold the files, in the order in which they are tried."""
    roots = [*_given_dirs(data_dir), cache_dir()]
    if entry.packaged is not None:
        return [entry.packaged]
    folders = [folder for root in roots for folder in [*(root / name for name in entry.folders), root]]
    return folders if entry.system_folder is None else [*folders, entry.system_folder]


def _files_in(folder: Path, entry: CatalogEntry) -> dict[str, Path]:
    # As published first: a download then takes precedence over a damaged unpacked copy beside it.
    if entry.archive is not None and (folder / entry.archive).is_file():
        return dict.fromkeys(entry.contents, folder / entry.archive)
    choices = ((name, (folder / f"{name}.gz", folder / name)) for name in entry.contents)
    found = ((name, next((path for path in paths if path.is_file()), None)) for name, paths in choices)
    return {name: path for name, path in found if path is not None}


def _remedy(entry: CatalogEntry, data_dir: PathLike | None) -> str:
    """How to get the official files, as part of a sentence."""
    if entry.packaged is not None:
        return "install gossamer again"
    option = f" --data-dir {shlex.quote(os.fspath(data_dir))}" if data_dir else ""
    return f"run `gossamer data get {entry.name}{option}`"


def _verify_by_default() -> bool:
    """Whether files are checked when the caller does not choose: always, except with GOSSAMER_VERIFY=0."""
    value = os.environ.get(VERIFY) or "1"
    if value not in ("0", "1"):
        raise InputError(
            f"{VERIFY} is 0 (accept files with another checksum) or 1 (refuse them), not {value!r}; set one of them."
        )
    return value == "1"


def _intact(location: Location) -> bool:
    try:
        _read(location, verify=True)
    except GossamerError:
        return False
    return True


def _read(location: Location, verify: bool, data_dir: PathLike | None = None) -> dict[str, Content]:
    """The unpacked content of every file; with `verify`, only if each has its official checksum.

    `data_dir` is what the location was found with; an error names it in the command to run.
    """
    entry = CATALOG[location.name]
    contents: dict[str, Content] = {}
    for path in dict.fromkeys(location.files.values()):
        names = [name for name, holder in location.files.items() if holder == path]
        for name, data in _unpack(path, names, entry.largest):
            where = str(path) if len(names) == 1 else f"{path} ({name})"
            if verify and not has_checksum(data, entry.contents[name]):
                raise _refused(entry, name, data, where, data_dir)
            contents[name] = Content(data, where)
    return contents


def _unpack(path: Path, names: list[str], largest: int) -> Iterator[tuple[str, bytes]]:
    """The named files; none of them, and no archive, is unpacked beyond the size that the dataset has."""
    try:
        if path.name.endswith(".tar.gz"):
            with _Bounded(path, len(names) * largest + _ARCHIVE_OVERHEAD) as file:
                yield from _unpack_archive(file, path, names)
        elif path.suffix == ".gz":
            with _Bounded(path, largest) as file:
                yield names[0], file.read()
        else:
            yield names[0], path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        if isinstance(error, GossamerError):
            raise
        # tarfile raises ValueError for some headers that make no sense.
        raise damaged(str(path), str(error)) from error
    except OSError as error:
        raise DiskError(f"{path} cannot be read: {error.strerror or error}.") from error


_ARCHIVE_OVERHEAD = 1 << 20
"""Bytes that an archive may hold besides the named files: headers, padding, a readme."""


class _Bounded(gzip.GzipFile):
    """A compressed file that unpacks to at most `most` bytes."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__(path, "rb")
        self._path, self._most, self._left = path, most, most

    def read(self, size: int | None = -1) -> bytes:
        """The next `size` bytes, or all."""
        data = super().read(self._left + 1 if size is None or size < 0 else min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise damaged(str(self._path), f"it unpacks to more than the {self._most:,} bytes of its dataset")
        return data


def _unpack_archive(file: _Bounded, path: Path, names: list[str]) -> Iterator[tuple[str, bytes]]:
    """The named files, in whatever folder of the archive they are; nothing is written to disk."""
    left = set(names)
    # As a stream: the archive is read once, from its beginning to its end.
    with tarfile.open(fileobj=file, mode="r|") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            content = archive.extractfile(member) if name in left and member.isfile() else None
            if content is not None:
                left.remove(name)
                yield name, content.read()
    if left:
        raise damaged(str(path), f"the archive lacks {', '.join(sorted(left))}")


def _refused(entry: CatalogEntry, name: str, data: bytes, where: str, data_dir: PathLike | None) -> InputError:
    """The error for a file with a checksum that is not the official one."""
    for other in CATALOG.values():
        official = other.contents.get(name)
        if official is not None and other is not entry and has_checksum(data, official):
            return InputError(
                f"{where} belongs to {other.name}, not to {entry.name}; keep them apart, in folders of these names."
            )
    return InputError(
        f"{where} does not have the checksum of the official {entry.name} file, so it is damaged or another version; "
        f"{_remedy(entry, data_dir)} to get the official one, or accept this one with {VERIFY}=0 in the environment or "
        f"gossamer.data.load('{entry.name}', verify=False) in Python."
    )
