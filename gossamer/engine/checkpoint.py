"""The checkpoints of a simulation: the newest two are kept, and in the place of a damaged one the one before is used.

Files of another run may lie among them. They are passed over and left alone: never loaded, written over or deleted.
"""

import logging
from pathlib import Path
from typing import Any

from gossamer._common import checkpoint_file as files

KEPT = 2

log = logging.getLogger("gossamer")


def save(directory: Path, round: int, settings: dict[str, Any], content: dict[str, Any]) -> Path:
    """Write the checkpoint of `round` and drop all but this run's newest two.

    What lies under its name and is not known to be this run's is kept under another one, with a warning.
    """
    path = files.path_of(directory, round)
    if round in files.rounds_in(directory) and not _is_own(path, settings):
        aside = files.keep_aside(path).name
        log.warning(
            "This run writes its own checkpoint %s: what lay there and is not its own is kept as %s.", path, aside
        )
    files.write(directory, round, settings, content)
    paths = [files.path_of(directory, number) for number in files.rounds_in(directory)]
    for old in [p for p in paths if p == path or _is_own(p, settings)][:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def load_newest(directory: Path, settings: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """The round and content of this run's newest undamaged checkpoint, or None if nobody has one here.

    Those above it are refused with a warning each: a damaged one is set aside, one of another run stays as it is. Where
    only other runs have undamaged ones this raises and moves nothing. What a killed process has left half-written is
    removed.
    """
    files.remove_unfinished(directory)
    damaged: dict[Path, ValueError] = {}
    foreign: dict[Path, files.Foreign] = {}
    for number in reversed(files.rounds_in(directory)):
        path = files.path_of(directory, number)
        try:
            saved = _read_own(path, settings)
        except files.UNREADABLE as error:
            damaged[path] = error
        except files.Foreign as error:
            # Without the frames, which hold all that was read.
            foreign[path] = error.with_traceback(None)
        else:
            _refuse(damaged, foreign, f"{path.name} is used")
            return saved["round"], saved["content"]
    if foreign:
        for path, reason in damaged.items():
            log.warning("The checkpoint %s is damaged (%s): it is left as it is.", path, reason)
        raise next(iter(foreign.values()))
    _refuse(damaged, {}, "no whole one is left, and the run begins anew")
    return None


def _read_own(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    saved = files.read(path)
    files.refuse_foreign(path, saved["settings"], _comparable(settings, saved["settings"]))
    return saved


def _refuse(damaged: dict[Path, ValueError], foreign: dict[Path, files.Foreign], instead: str) -> None:
    """Say of all that is not used why that is so, and what happens instead."""
    for path, error in foreign.items():
        log.warning(
            "The checkpoint %s belongs to another run (%s): %s; it is left as it is.", path, error.difference, instead
        )
    for path, reason in damaged.items():
        aside = files.set_aside(path).name
        log.warning("The checkpoint %s is damaged (%s): %s; kept as %s.", path, reason, instead, aside)


def _is_own(path: Path, settings: dict[str, Any]) -> bool:
    theirs = files.settings_of(path)
    return theirs is not None and not files.difference(theirs, _comparable(settings, theirs))


def _comparable(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """What both say: what a checkpoint of an earlier version does not say is not held against it."""
    return {key: value for key, value in ours.items() if key in theirs}
