"""Python files that define methods of one's own, so that these are known by name."""

import ast
import hashlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from gossamer.errors import GossamerError, InputError, describe

_VERSIONS: dict[str, str] = {}
"""The version of every module that was loaded, as it was then: the file may have been edited since."""


def load_python(paths: Sequence[Path]) -> None:
    """Run Python files, each once per process unless it has changed."""
    from gossamer import methods  # not above: the report reads versions, and needs no torch

    for path in paths:
        if not path.is_file():
            raise InputError(f"There is no file {path} to load; give a Python file that defines your methods.")
        if path.suffix != ".py":
            raise InputError(f"{path} is not a Python file; its name must end in .py.")
        name, file = _module_name(path), str(path.resolve())
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
        except GossamerError as error:
            sys.modules.pop(name, None)
            raise InputError(f"{path}, line {_line(error, file)}: {error}") from error
        except Exception as error:
            sys.modules.pop(name, None)
            raise InputError(f"{path} cannot be loaded: {describe(error)}.") from error
        _VERSIONS[name] = version
    if paths and set(methods.names()) <= set(methods.BUILT_IN):
        raise InputError(
            f"{paths[0]} defines no method with a name; give a class derived from gossamer.Method a line such as "
            'name = "my-method".'
        )


def loaded_names(paths: Sequence[Path]) -> list[str]:
    """The names of the methods that files given to `load_python` define."""
    from gossamer import methods

    modules = {_module_name(path) for path in paths}
    return [name for name in methods.names() if methods.find(name).__module__ in modules]


def version_of(method: type) -> str | None:
    """Sixteen hex digits that change with the code of the loaded file that defines `method`; None for any other.

    Comments and blanks do not count, and neither do files that the file imports.
    """
    return _VERSIONS.get(method.__module__)


def _module_name(path: Path) -> str:
    return f"gossamer_loaded_{path.stem}"


def _line(error: BaseException, file: str) -> int | None:
    """The last line of `file` that led to the error."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def _version(source: bytes) -> str:
    return hashlib.sha256(ast.unparse(ast.parse(source)).encode()).hexdigest()[:16]
