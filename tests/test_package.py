"""The package as a whole: its names, its version, and what importing it costs."""

import re
import subprocess
import sys
from types import ModuleType

import pytest

import gossamer


def python(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("name", gossamer.__all__)
def test_every_public_name_resolves(name):
    assert getattr(gossamer, name) is not None


def test_public_names_are_what_they_are_called():
    for name in gossamer.__all__:
        value = getattr(gossamer, name)
        if isinstance(value, ModuleType):
            assert value.__name__.startswith("gossamer.")
            assert value.__name__.endswith(f".{name}")
        elif name != "__version__":
            assert value.__name__ == name
            assert value.__module__.startswith("gossamer.")


def test_every_public_name_is_explained():
    for name in gossamer.__all__:
        if name != "__version__":
            assert getattr(gossamer, name).__doc__, name


def test_names_are_listed_once_and_all_of_them():
    assert len(set(gossamer.__all__)) == len(gossamer.__all__)
    assert sorted(dir(gossamer)) == sorted(gossamer.__all__)
    assert set(gossamer.methods.__all__) >= {
        cls.__name__ for cls in map(gossamer.methods.find, gossamer.methods.BUILT_IN)
    }


def test_methods_are_the_same_from_everywhere():
    assert gossamer.MomentumTracking is gossamer.methods.MomentumTracking
    assert gossamer.GossamerError is gossamer.errors.GossamerError
    assert gossamer.minimize is gossamer.engine.minimize


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'gossamer' has no attribute 'momentum'"):
        _ = gossamer.momentum
    assert not hasattr(gossamer, "_nothing")


def test_the_version_is_a_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+", gossamer.__version__)


def test_importing_it_imports_nothing_heavy():
    heavy = python("import sys, gossamer; dir(gossamer); print({'torch', 'numpy', 'matplotlib'} & set(sys.modules))")
    assert heavy == "set()"


def test_a_star_import_gives_the_public_names():
    assert python("from gossamer import *; print(DSGD().name, topology.ring(3).n, __version__)") == (
        f"dsgd 3 {gossamer.__version__}"
    )


def test_the_error_is_a_value_error():
    """So that code which knows nothing of Gossamer catches bad input as it always did."""
    assert issubclass(gossamer.GossamerError, ValueError)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rnig", "There is no graph 'rnig'; did you mean 'ring'? Known: ring, star."),
        ("xyzzy", "There is no graph 'xyzzy'. Known: ring, star."),
    ],
)
def test_unknown_names_get_the_nearest(name, message):
    assert str(gossamer.errors.unknown("graph", name, ["star", "ring"])) == message
