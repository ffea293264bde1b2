"""Where a dataset's files are on this machine, and what is in them once unpacked and checked.

Searched in this order: the `data_dir` argument, the directory in GOSSAMER_DATA, the user's cache, the folder of the
operating system's package (Debian has one for Fashion-MNIST). The first complete set of files counts, and only that
one: a damaged set is reported, never silently replaced by a copy found further down. A download goes where it is found
first, before the system's files, which a user cannot repair.
"""

import gzip
import os
import shlex
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gossamer.data.catalog import CATALOG, Entry
from gossamer.data.checksums import bytes_have
from gossamer.data.readers import Content, damaged
from gossamer.errors import GossamerError, InputError

VARIABLE = "GOSSAMER_DATA"
VERIFY = "GOSSAMER_VERIFY"
PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Location:
    """A complete set of files: the dataset, the folder, and which file on disk holds each unpacked file."""

    name: str
    folder: Path
    files: Mapping[str, Path]


def cache_dir() -> Path:
    """The user's cache: $XDG_CACHE_HOME/gossamer, or ~/.cache/gossamer."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gossamer"


def given_dirs(data_dir: PathLike | None) -> list[Path]:
    """The directories the user named, by argument and by environment variable, the argument first."""
    if data_dir is not None and not isinstance(data_dir, str | os.PathLike):
        raise InputError(f"data_dir is the path of a directory, or None to leave it open, not {data_dir!r}.")
    named = (data_dir, os.environ.get(VARIABLE))
    return [Path(directory).expanduser() for directory in named if directory]


def wants_checksums() -> bool:
    """Whether files are checked where the program does not say: always, except with GOSSAMER_VERIFY=0."""
    value = os.environ.get(VERIFY) or "1"
    if value not in ("0", "1"):
        raise InputError(
            f"{VERIFY} is 0 (accept files with another checksum) or 1 (refuse them), not {value!r}; set one of them."
        )
    return value == "1"


def download_folder(entry: Entry, data_dir: PathLike | None) -> Path:
    """Where a download of this dataset goes, which is also where it will be looked for first."""
    return [*given_dirs(data_dir), cache_dir()][0] / entry.folders[0]


def candidate_folders(entry: Entry, data_dir: PathLike | None) -> list[Path]:
    """Every folder that may hold the files, in the order in which they are tried."""
    given = given_dirs(data_dir)
    if entry.packaged is not None:
        return [entry.packaged]

    def below(root: Path) -> list[Path]:
        return [*(root / folder for folder in entry.folders), root]

    system = [entry.system_folder] if entry.system_folder is not None else []
    named = [folder for root in given for folder in below(root)]
    return [*named, *below(cache_dir()), *system]


def find(entry: Entry, data_dir: PathLike | None) -> Location | None:
    """The first complete set of files, or None."""
    for folder in candidate_folders(entry, data_dir):
        files = _files_in(folder, entry)
        if len(files) == len(entry.contents):
            return Location(entry.name, folder, files)
    return None


def remedy(entry: Entry, data_dir: PathLike | None) -> str:
    """What to do to have the official files, as part of a sentence."""
    if entry.packaged is not None:
        return "install gossamer again"
    option = f" --data-dir {shlex.quote(os.fspath(data_dir))}" if data_dir else ""
    return f"run `gossamer data get {entry.name}{option}`"


def missing(entry: Entry, data_dir: PathLike | None) -> GossamerError:
    """The error for a dataset that is nowhere: what to run, where to put files by hand, what is incomplete."""
    message = f"The dataset {entry.name} is not on this machine; {remedy(entry, data_dir)}"
    if entry.packaged is not None:
        return InputError(f"{message}.")
    names = ", ".join(file.name for file in entry.published)
    folder = download_folder(entry, data_dir)
    message += f", or put {names} into {folder}, or set {VARIABLE} to the directory that has them."
    for tried in candidate_folders(entry, data_dir):
        if files := _files_in(tried, entry):
            lacking = ", ".join(name for name in entry.contents if name not in files)
            return InputError(f"{message} ({tried} has only a part of it and lacks {lacking}.)")
    return InputError(message)


def _files_in(folder: Path, entry: Entry) -> dict[str, Path]:
    # As published first: a download then takes precedence over a damaged unpacked copy beside it.
    if entry.archive is not None and (folder / entry.archive).is_file():
        return dict.fromkeys(entry.contents, folder / entry.archive)
    choices = ((name, (folder / f"{name}.gz", folder / name)) for name in entry.contents)
    found = ((name, next((path for path in paths if path.is_file()), None)) for name, paths in choices)
    return {name: path for name, path in found if path is not None}


def read(location: Location, verify: bool, data_dir: PathLike | None = None) -> dict[str, Content]:
    """The unpacked content of every file; with `verify`, only if each has its official checksum.

    `data_dir` is what the location was found with; an error names it in the command to run.
    """
    entry = CATALOG[location.name]
    contents: dict[str, Content] = {}
    for path in dict.fromkeys(location.files.values()):
        names = [name for name, holder in location.files.items() if holder == path]
        for name, data in _unpack(path, names):
            where = str(path) if len(names) == 1 else f"{path} ({name})"
            if verify and not bytes_have(entry.contents[name], data):
                raise _refused(entry, name, data, where, data_dir)
            contents[name] = Content(data, where)
    return contents


def _unpack(path: Path, names: list[str]) -> Iterator[tuple[str, bytes]]:
    try:
        if path.name.endswith(".tar.gz"):
            yield from _unpack_archive(path, names)
        elif path.suffix == ".gz":
            with gzip.open(path) as file:
                yield names[0], file.read()
        else:
            yield names[0], path.read_bytes()
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise damaged(str(path), str(error)) from error


def _unpack_archive(path: Path, names: list[str]) -> Iterator[tuple[str, bytes]]:
    """The named files, whatever folder of the archive they are in; nothing is written to disk."""
    left = set(names)
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            file = archive.extractfile(member) if name in left and member.isfile() else None
            if file is not None:
                left.remove(name)
                yield name, file.read()
    if left:
        raise damaged(str(path), f"the archive lacks {', '.join(sorted(left))}")


def _refused(entry: Entry, name: str, data: bytes, where: str, data_dir: PathLike | None) -> GossamerError:
    for other in CATALOG.values():
        official = other.contents.get(name)
        if official is not None and other is not entry and bytes_have(official, data):
            return InputError(
                f"{where} belongs to {other.name}, not to {entry.name}; keep them apart, in folders of these names."
            )
    return InputError(
        f"{where} has not the checksum of the official {entry.name} file, so it is damaged or another version; "
        f"{remedy(entry, data_dir)} to have the official one, or accept this one with {VERIFY}=0 in the environment or "
        f"gossamer.data.load('{entry.name}', verify=False) in Python."
    )
