"""Many small nodes at once: losses and gradients of a group of nodes in one go.

Run one by one, nodes with small batches spend their time in the overhead of a hundred small operations each. Here every
operation serves a whole group, with an arrangement of the numbers in memory that suits small batches (see `layers`).
"""

from gossamer.engine.together.chain import Together, Views
from gossamer.engine.together.groups import Cost, group_size, is_worthwhile
from gossamer.engine.together.recognition import build

__all__ = ["Cost", "Together", "Views", "build", "group_size", "is_worthwhile"]
