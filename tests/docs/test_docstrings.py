"""Every public name explains itself, and shows how it is used."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest

import gossamer

ROOMS = [
    "gossamer.data",
    "gossamer.data.partition",
    "gossamer.engine",
    "gossamer.methods",
    "gossamer.models",
    "gossamer.network",
    "gossamer.optim",
    "gossamer.problems",
    "gossamer.testing",
    "gossamer.theory",
    "gossamer.topology",
]


def public(room: str) -> dict[str, object]:
    module = import_module(room)
    found = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in found.items() if inspect.isclass(value) or inspect.isfunction(value)}


def docstring(value: object) -> str:
    """Its own, not one that was inherited."""
    return str(vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__ or "")


@pytest.mark.parametrize("room", ROOMS)
def test_public_names_are_explained(room):
    assert [name for name, value in public(room).items() if len(docstring(value)) < 10] == []


@pytest.mark.parametrize("room", ROOMS)
def test_public_names_show_an_example(room):
    assert [name for name, value in public(room).items() if ">>>" not in docstring(value)] == []


@pytest.mark.parametrize("room", ROOMS)
def test_functions_have_type_hints(room):
    for name, value in public(room).items():
        call = value.__init__ if inspect.isclass(value) and "__init__" in vars(value) else value
        if inspect.isfunction(call) and not getattr(value, "_is_protocol", False):
            given = [p for p in inspect.signature(call).parameters if p not in ("self", "cls")]
            assert set(given) <= set(call.__annotations__), name


def test_type_checkers_are_told():
    assert (Path(gossamer.__file__).parent / "py.typed").exists()
