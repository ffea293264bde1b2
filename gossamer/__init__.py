"""Gossamer: decentralized deep learning on heterogeneous data.

Every public name is reachable from here and loaded when it is first used, so that `import gossamer` costs nothing:

>>> import gossamer as gs
>>> gs.topology.ring(8)
Topology('ring', n=8, degree=2, period=1)
>>> gs.MomentumTracking(beta=0.9)
MomentumTracking(beta=0.9, init='theorem')

The names are listed once, in `__init__.pyi`, one import per line: a new one is a new line there.
"""

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from gossamer._common import plotting as _plotting
from gossamer._version import __version__ as __version__

# What draws lies above what is drawn, so only this top of the package may name both.
_plotting.LOADERS.append(partial(import_module, "gossamer.report"))


def _read_names() -> dict[str, str]:
    """Every public name and the module it comes from, out of the lines `from module import name as name`."""
    lines = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").splitlines()
    imports = [line.split() for line in lines if line.startswith("from ")]
    return {name: module for _, module, _, _, _, name in imports}


_HOME = _read_names()
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gossamer' has no attribute '{name}'")
    if _HOME[name] == __name__:
        return import_module(f"gossamer.{name}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
