"""The API reference: one directive for every public name of a room."""

import inspect
from importlib import import_module
from types import ModuleType

from plain_docstrings import escape

ROOMS = {
    "gossamer": "api/gossamer.md",
    "gossamer.methods": "api/methods.md",
    "gossamer.topology": "api/topology.md",
    "gossamer.data": "api/data.md",
    "gossamer.data.partition": "api/partition.md",
    "gossamer.models": "api/models.md",
    "gossamer.engine": "api/engine.md",
    "gossamer.optim": "api/optim.md",
    "gossamer.network": "api/network.md",
    "gossamer.problems": "api/problems.md",
    "gossamer.theory": "api/theory.md",
    "gossamer.testing": "api/testing.md",
}


def room(name: str) -> str:
    """Every public name of a room, explained where it is defined."""
    module = import_module(name)
    names = [n for n in module.__all__ if not n.startswith("__")]
    found = [(n, getattr(module, n)) for n in names]
    return "\n\n".join(f"::: {name}.{n}" for n, value in found if not isinstance(value, ModuleType))


def package() -> str:
    """Every name that `import gossamer` offers, and where it is explained."""
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
            owner = max((r for r in ROOMS if home.startswith(f"{r}.")), key=len)
            page = "" if owner == "gossamer" else _page(owner)
            lines.append(f"- [`gossamer.{name}`]({page}#{owner}.{name}): {_first_sentence(value)}")
    return "\n".join(lines)


def _page(name: str) -> str:
    return ROOMS[name].removeprefix("api/") if name in ROOMS else "#gossamer.GossamerError"


def _first_sentence(value: object) -> str:
    return escape((inspect.getdoc(value) or "").split("\n")[0])
