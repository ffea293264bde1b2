"""Python files that define methods of one's own, so that these are known by name."""

import ast
import hashlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from gossamer.errors import GossamerError

_VERSIONS: dict[str, str] = {}
"""The version of every module that was loaded, as it was then: the file may have been edited since."""


def load_python(paths: Sequence[Path]) -> None:
    """Run Python files, each once per process unless it has changed."""
    for path in paths:
        if not path.is_file():
            raise GossamerError(f"There is no file {path} to load; give a Python file that defines your methods.")
        if path.suffix != ".py":
            raise GossamerError(f"{path} is not a Python file; its name must end in .py.")
        name, file = f"gossamer_loaded_{path.stem}", str(path.resolve())
        before = sys.modules.get(name)
        module = ModuleType(name)
        module.__file__ = file
        try:
            source = path.read_bytes()
            version = _version(source)
            if before is not None and (before.__file__, _VERSIONS.get(name)) == (file, version):
                continue
            sys.modules[name] = module
            # Not by import, which may take bytecode of the version before for that of this one.
            exec(compile(source, file, "exec"), module.__dict__)
        except Exception as error:
            sys.modules.pop(name, None)
            raise GossamerError(f"{path} cannot be loaded: {describe(error)}.") from error
        _VERSIONS[name] = version


def version_of(method: type) -> str | None:
    """Sixteen hex digits that change with the code of the loaded file that defines `method`; None for any other.

    Comments and blanks do not count, and neither do files that the file imports.
    """
    return _VERSIONS.get(method.__module__)


def describe(error: BaseException) -> str:
    """An error of somebody's code in words: what, and in which file and line."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} in line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def _version(source: bytes) -> str:
    return hashlib.sha256(ast.unparse(ast.parse(source)).encode()).hexdigest()[:16]
