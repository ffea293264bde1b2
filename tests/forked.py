"""What the processes of tests have imported before they are forked: a fresh process would need seconds for it."""

import gc

import torch._dynamo  # noqa: F401

import gossamer.optim  # noqa: F401
import tests.optim.cases  # noqa: F401

# Children then copy no page only because the collector looked at it, and end without looking through all objects.
gc.collect()
gc.freeze()
