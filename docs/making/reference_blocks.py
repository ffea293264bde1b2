"""The API reference: one directive for every public name of a package."""

import ast
import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType

from plain_docstrings import escape

PAGES = {
    "gossamer": "api/gossamer.md",
    "gossamer.methods": "api/methods.md",
    "gossamer.topology": "api/topology.md",
    "gossamer.compression": "api/compression.md",
    "gossamer.data": "api/data.md",
    "gossamer.data.partition": "api/partition.md",
    "gossamer.models": "api/models.md",
    "gossamer.tasks": "api/tasks.md",
    "gossamer.engine": "api/engine.md",
    "gossamer.optim": "api/optim.md",
    "gossamer.integrations": "api/integrations.md",
    "gossamer.network": "api/network.md",
    "gossamer.problems": "api/problems.md",
    "gossamer.theory": "api/theory.md",
    "gossamer.report": "api/report.md",
    "gossamer.testing": "api/testing.md",
}


def names(package: str) -> str:
    """A directive for every public name of a package."""
    module = import_module(package)
    found = [(name, getattr(module, name)) for name in module.__all__ if not name.startswith("__")]
    return "\n\n".join(f"::: {package}.{name}" for name, value in found if not isinstance(value, ModuleType))


def package() -> str:
    """Every name of `gossamer` itself, with a link to its explanation."""
    module = import_module("gossamer")
    lines = []
    for name in module.__all__:
        value = getattr(module, name)
        if name == "__version__":
            lines.append(f"- `gossamer.{name}`: the version.")
        elif isinstance(value, ModuleType):
            lines.append(f"- [`gossamer.{name}`]({_page(value.__name__)}): {_first_sentence(value)}")
        else:
            home = value.__module__
            owner = max((p for p in PAGES if f"{home}.".startswith(f"{p}.")), key=len)
            page = "" if owner == "gossamer" else _page(owner)
            lines.append(f"- [`gossamer.{name}`]({page}#{owner}.{name}): {_first_sentence(value)}")
    return "\n".join(lines)


def _page(name: str) -> str:
    return PAGES[name].removeprefix("api/") if name in PAGES else "#gossamer.GossamerError"


def _first_sentence(value: object) -> str:
    return escape((inspect.getdoc(value) or "").split("\n")[0])


def modules(package: str = "") -> str:
    """Every module of a package of Gossamer, or of its top level, with the first sentence of its docstring."""
    root = Path(import_module("gossamer").__file__ or "").parent
    rows = ["| file | contents |", "| --- | --- |"]
    for path in sorted((root / package).glob("*.py")):
        if path == root / "__init__.py":
            continue
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        name = path.relative_to(root).as_posix().replace("__init__.py", "")
        rows.append(f"| `{name}` | {escape(docstring.splitlines()[0])} |")
    return "\n".join(rows)
