"""Python files of the user's own that define methods, datasets, models, losses and metrics, known by name then."""

import ast
import hashlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from gossamer.errors import GossamerError, InputError, describe

VERSIONS: dict[str, str] = {}
"""Sixteen hex digits for every module loaded here, which change with its code but not with comments and blanks.

They are those of the code that was run: the file may have been edited since. Files that it imports do not count.
"""


def load_python(paths: Sequence[Path]) -> None:
    """Run Python files, each once per process unless it has changed."""
    for path in paths:
        if not path.is_file():
            raise InputError(
                f"There is no file {path} to load; give a Python file that defines your methods, data or models."
            )
        if path.suffix != ".py":
            raise InputError(f"{path} is not a Python file; its name must end in .py.")
        name, file = _module_name(path), str(path.resolve())
        before = sys.modules.get(name)
        module = ModuleType(name)
        module.__file__ = file
        try:
            source = path.read_bytes()
            version = hashlib.sha256(ast.unparse(ast.parse(source)).encode()).hexdigest()[:16]
            if before is not None and (before.__file__, VERSIONS.get(name)) == (file, version):
                continue
            sys.modules[name] = module
            # Not by import, which may use cached bytecode of the previous version.
            exec(compile(source, file, "exec"), module.__dict__)
        except GossamerError as error:
            sys.modules.pop(name, None)
            raise InputError(f"{path}, line {_line(error, file)}: {error}") from error
        except Exception as error:
            sys.modules.pop(name, None)
            raise InputError(f"{path} cannot be loaded: {describe(error)}.") from error
        VERSIONS[name] = version
    if paths and not _anything_own():
        raise InputError(
            f"{paths[0]} defines no method with a name; give a class derived from gossamer.Method a line such as "
            'name = "my-method", or register a dataset (gossamer.data.register), a model, a loss or a metric.'
        )


def _anything_own() -> bool:
    """Whether anything is known by name that is not built in."""
    from gossamer import methods, tasks  # not above: the report needs VERSIONS, and no torch
    from gossamer.data import loading
    from gossamer.models import image_classifiers

    own = (loading.OWN, image_classifiers.OWN, tasks.own(), set(methods.names()) - set(methods.BUILT_IN))
    return any(own)


def loaded_names(paths: Sequence[Path]) -> list[str]:
    """The names of the methods that files given to `load_python` define."""
    from gossamer import methods

    modules = {_module_name(path) for path in paths}
    return [name for name in methods.names() if methods.find(name).__module__ in modules]


def _module_name(path: Path) -> str:
    return f"gossamer_loaded_{path.stem}"


def _line(error: BaseException, file: str) -> int | None:
    """The last line of `file` that led to the error."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None
