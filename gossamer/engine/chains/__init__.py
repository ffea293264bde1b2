"""Models that are chains of known layers, computed without autograd.

Nodes with small batches, run one by one, spend their time in the overhead of a hundred small operations each: there
every operation serves a whole group of nodes, in an arrangement of the numbers that suits small batches (`batch_last`).
Wide models and large batches run node by node with torch's own operations, in an order that saves work
(`channels_last`).
"""

from gossamer.engine.chains.batch_last import BATCH_LAST
from gossamer.engine.chains.chain import Chain, Views
from gossamer.engine.chains.channels_last import CHANNELS_LAST
from gossamer.engine.chains.groups import Cost, cost_of, group_size, is_worthwhile
from gossamer.engine.chains.recognition import Plan, read

__all__ = [
    "BATCH_LAST", "CHANNELS_LAST", "Chain", "Cost", "Plan", "Views", "cost_of", "group_size", "is_worthwhile", "read",
]  # fmt: skip
