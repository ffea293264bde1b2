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

import lazy_loader

from gossamer._common import plotting as _plotting

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# What draws lies above what is drawn, so only this top of the package may name both.
_plotting.LOADERS.append(partial(import_module, "gossamer.report"))
