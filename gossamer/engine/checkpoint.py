"""Everything a run needs to go on, in one file that is either whole or not there.

Checkpoints are named by their round; the newest two are kept. A file carries the settings of its run, so that it is not
continued by another one, and ends in a digest, so that a damaged file is noticed: then the one before it is used.
"""

import hashlib
import logging
import re
from pathlib import Path
from typing import Any

import torch

from gossamer.errors import GossamerError
from gossamer.files import replacing

KEPT = 2
_NAME = re.compile(r"round-(\d{9})\.ckpt")
_DIGEST = 32

log = logging.getLogger("gossamer")


def save(directory: Path, round: int, settings: dict[str, Any], content: dict[str, Any]) -> Path:
    """Write the checkpoint of `round` and drop all but the newest two."""
    path = directory / f"round-{round:09d}.ckpt"
    with replacing(path) as temporary:
        torch.save({"round": round, "settings": settings, "content": content}, temporary)
        digest, _ = _digests(temporary, tail=0)
        with temporary.open("ab") as file:
            file.write(digest)
    files = _all(directory)
    for old in sorted(files)[:-KEPT]:
        files[old].unlink(missing_ok=True)
    return path


def load_newest(directory: Path, settings: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """The round and content of the newest undamaged checkpoint, or None; refuses one that another run has written."""
    files = _all(directory)
    for number in sorted(files, reverse=True):
        try:
            saved = _read(files[number])
        except (OSError, RuntimeError, ValueError) as error:
            log.warning("The checkpoint %s is damaged (%s); the one before it is used.", files[number], error)
            continue
        _refuse_foreign(files[number], saved["settings"], settings)
        return saved["round"], saved["content"]
    return None


def _read(path: Path) -> dict[str, Any]:
    computed, written = _digests(path, tail=_DIGEST)
    if computed != written:
        raise ValueError("its content does not match its digest")
    saved: dict[str, Any] = torch.load(path, weights_only=True)
    return saved


def _digests(path: Path, tail: int) -> tuple[bytes, bytes]:
    """The digest of all but the last `tail` bytes, and those last bytes. torch itself does not notice a flipped bit."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    left = path.stat().st_size - tail
    with path.open("rb") as file:
        while left > 0 and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
        return digest.digest(), file.read()


def _all(directory: Path) -> dict[int, Path]:
    if not directory.is_dir():
        return {}
    return {int(m[1]): path for path in directory.iterdir() if (m := _NAME.fullmatch(path.name))}


def _refuse_foreign(path: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    different = [key for key in ours if theirs.get(key) != ours[key]]
    if different:
        key = different[0]
        raise GossamerError(
            f"The checkpoint {path} belongs to another run: its {key} is {theirs.get(key)!r}, this run's is "
            f"{ours[key]!r}; choose another directory, or go on with the settings it was made with."
        )
