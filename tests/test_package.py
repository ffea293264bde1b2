"""The package as a whole: its names, its version, and what importing it costs."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gossamer


def python(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_public_names_are_what_they_are_called_and_explained():
    for name in gossamer.__all__:
        value = getattr(gossamer, name)
        if isinstance(value, ModuleType):
            assert value.__name__.startswith("gossamer.")
            assert value.__name__.endswith(f".{name}")
        elif name != "__version__":
            assert value.__name__ == name
            assert value.__module__.startswith("gossamer.")
        assert value.__doc__, name


def test_every_built_in_method_is_public():
    built_in = {gossamer.methods.find(name).__name__ for name in gossamer.methods.BUILT_IN}
    assert built_in <= set(gossamer.methods.__all__)
    assert built_in <= set(dir(gossamer))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="momentum"):
        _ = gossamer.momentum
    assert not hasattr(gossamer, "_nothing")


def test_type_checkers_are_told():
    assert (Path(gossamer.__file__).parent / "py.typed").exists()


def test_importing_it_imports_nothing_heavy():
    heavy = python("import sys, gossamer; dir(gossamer); print({'torch', 'numpy', 'matplotlib'} & set(sys.modules))")
    assert heavy == "set()"


def test_a_star_import_gives_the_public_names():
    names: dict[str, Any] = {}
    exec("from gossamer import *", names)
    assert (names["DSGD"]().name, names["topology"].ring(3).n) == ("dsgd", 3)
    assert set(gossamer.__all__) <= set(names)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("InputError", ValueError),
        ("PeerError", ConnectionError),
        ("DiskError", OSError),
        ("DivergenceError", ArithmeticError),
    ],
)
def test_errors_are_of_a_kind_that_other_code_knows(error, kind):
    """So that code which knows nothing of Gossamer can tell bad input, a failed peer and a failed disk apart."""
    assert issubclass(getattr(gossamer.errors, error), kind)
    assert issubclass(getattr(gossamer.errors, error), gossamer.GossamerError)
    assert getattr(gossamer, error) is getattr(gossamer.errors, error)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rnig", "There is no graph 'rnig'; did you mean 'ring'? Known: ring, star."),
        ("xyzzy", "There is no graph 'xyzzy'. Known: ring, star."),
    ],
)
def test_unknown_names_get_the_nearest(name, message):
    assert str(gossamer.errors.unknown("graph", name, ["star", "ring"])) == message
