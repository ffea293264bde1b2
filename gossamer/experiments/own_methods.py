"""Python files that define methods of one's own, so that these are known by name."""

import importlib.util
import sys
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
        spec.loader.exec_module(module)
