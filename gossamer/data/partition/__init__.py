"""Who holds which samples.

A recipe says how to divide a training set; applied to the targets it gives a `Partition`:

>>> import torch
>>> recipe = k_class(nodes=4, k=2, seed=0)
>>> nodes = recipe(torch.arange(1000) % 5)
>>> len(nodes), len(nodes.validation), nodes.label_counts.shape
(4, 100, torch.Size([4, 5]))
>>> int((nodes.label_counts > 0).sum(1).max())
2

Recipes: `iid`, `k_class`, `dirichlet`, `shards`, `from_lists`, `from_function`. A share of every class (`holdout`,
10 %) is kept for validation first; which samples depends on the seed and the targets only, so all recipes with
one seed share the validation set. Every class that occurs has a holder and no node is empty, or a sentence says
why it cannot be.
"""

from collections.abc import Callable

from gossamer._common import specs
from gossamer.data.partition.kinds import dirichlet, iid, k_class, shards
from gossamer.data.partition.own import from_function, from_lists
from gossamer.data.partition.recipe import Recipe
from gossamer.data.partition.result import Partition
from gossamer.errors import unknown

__all__ = [
    "Partition",
    "Recipe",
    "dirichlet",
    "from_function",
    "from_lists",
    "get",
    "iid",
    "k_class",
    "names",
    "shards",
]

_BY_NAME: dict[str, Callable[..., Recipe]] = {"iid": iid, "k-class": k_class, "dirichlet": dirichlet, "shards": shards}


def names() -> list[str]:
    """The names that `get` knows.

    >>> names()
    ['iid', 'k-class', 'dirichlet', 'shards']
    """
    return list(_BY_NAME)


def get(spec: str, nodes: int, seed: int = 0) -> Recipe:
    """The recipe that `spec` describes: a name with parameters after a colon.

    >>> get("k-class:k=4", nodes=8)
    k_class(nodes=8, k=4, seed=0, equal_sizes=True)
    >>> get("dirichlet:alpha=0.1,min_size=20", nodes=8, seed=3)
    dirichlet(nodes=8, alpha=0.1, seed=3, min_size=20, equal_sizes=False)
    """
    name, rest = specs.split(spec)
    if name not in _BY_NAME:
        raise unknown("partition", name, _BY_NAME)
    build = _BY_NAME[name]
    given = {"nodes": nodes, "seed": seed, **specs.parameters("partition", name, build, rest, given=("nodes",))}
    return build(**given)
