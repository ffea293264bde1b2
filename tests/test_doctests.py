"""Every example in the package's docstrings runs and shows what it says."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import gossamer
from gossamer.methods import Method

# Running it is the command line itself; importing other people's trainers takes seconds (tests/integrations does).
LEFT_OUT = ("gossamer.__main__", "gossamer.integrations.")
NAMES = [m.name for m in pkgutil.walk_packages(gossamer.__path__, "gossamer.") if not m.name.startswith(LEFT_OUT)]


@pytest.mark.parametrize("name", ["gossamer", *NAMES])
def test_examples(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Method, "_registry", dict(Method._registry))
    if name == "gossamer.network.sites":
        pytest.importorskip("torchft", reason="its examples make sites: pip install 'gossamer[elastic]'")
    outcome = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.failed == 0


def test_there_are_examples():
    """A finder that found nothing would pass everything."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert sum(len(test.examples) for name in NAMES for test in finder.find(import_module(name))) > 30
