"""Python files that define methods of one's own, so that these are known by name."""

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from gossamer.errors import GossamerError


def load_python(paths: Sequence[Path]) -> None:
    """Run Python files, each once per process."""
    for path in paths:
        if not path.is_file():
            raise GossamerError(f"There is no file {path} to load; give a Python file that defines your methods.")
        name = f"gossamer_loaded_{path.stem}"
        loaded = sys.modules.get(name)
        if loaded is not None and loaded.__file__ == str(path.resolve()):
            continue
        spec = importlib.util.spec_from_file_location(name, path.resolve())
        if spec is None or spec.loader is None:
            raise GossamerError(f"{path} is not a Python file; its name must end in .py.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise GossamerError(f"{path} cannot be loaded: {describe(error)}.") from error


def describe(error: BaseException) -> str:
    """An error of somebody's code in words: what, and in which file and line."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} in line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
