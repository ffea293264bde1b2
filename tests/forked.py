"""What the processes of tests have imported before they are forked: a fresh process would need seconds for it."""

import gc
from importlib.util import find_spec

import torch._dynamo  # noqa: F401

import gossamer.optim  # noqa: F401
import tests.optim.cases
import tests.optim.site_runs  # noqa: F401

if find_spec("torchft"):
    import torchft  # noqa: F401

# Children then copy no page only because the collector looked at it, and end without looking through all objects.
gc.collect()
gc.freeze()
