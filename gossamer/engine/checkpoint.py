"""The checkpoints of a simulation: the newest two are kept, and where the newest is damaged the one before is used."""

import logging
from pathlib import Path
from typing import Any

from gossamer import checkpoint_files as files

KEPT = 2

log = logging.getLogger("gossamer")


def save(directory: Path, round: int, settings: dict[str, Any], content: dict[str, Any]) -> Path:
    """Write the checkpoint of `round` and drop all but the newest two."""
    path = files.write(directory, round, settings, content)
    for old in files.rounds_in(directory)[:-KEPT]:
        files.path_of(directory, old).unlink(missing_ok=True)
    return path


def load_newest(directory: Path, settings: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """The round and content of the newest undamaged checkpoint, or None; refuses one that another run has written.

    Damaged files are set aside, and what a killed process has left half-written is removed.
    """
    files.remove_unfinished(directory)
    for number in reversed(files.rounds_in(directory)):
        path = files.path_of(directory, number)
        try:
            saved = files.read(path)
        except files.UNREADABLE as error:
            aside = files.set_aside(path).name
            log.warning("The checkpoint %s is damaged (%s): the one before it is used; kept as %s.", path, error, aside)
            continue
        # What a checkpoint of an earlier version does not say is not held against it.
        files.refuse_foreign(path, saved["settings"], {k: v for k, v in settings.items() if k in saved["settings"]})
        return saved["round"], saved["content"]
    return None
