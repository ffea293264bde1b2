"""Files that are either the old ones or the new ones, never half-written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gossamer.errors import GossamerError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; what is written there takes the place of `path` when the block ends well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise GossamerError(
            f"Cannot write {path}: {error.strerror or error}; choose another place or make room there."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one piece."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
