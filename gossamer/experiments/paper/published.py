"""The accuracies that the paper reports: every cell of its Tables 2 to 8.

`published.json` holds them as printed: test accuracy in percent, mean and standard deviation over three seeds. Names
are those of Gossamer; `exponential` is the paper's semantic exponential graph. The paper states the ring of eight nodes
for Tables 2 and 3 only. Tables 5 to 8 name no graph and are taken to use it too, as the rows that they repeat from
Tables 2 and 3 do; but RelaySum needs a tree, so its `topology` is None. Table 4 names no model; its accuracies are
those of LeNet. Rows that the paper prints twice are here twice.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gossamer.errors import InputError, unknown

FILE = Path(__file__).parent / "published.json"


@dataclass(frozen=True)
class PublishedCell:
    """One accuracy: what was trained on which data over which graph, by which method, and what came out."""

    table: int
    dataset: str
    model: str
    topology: str | None
    partition: str
    """"k-class", with `k` set, or "dirichlet", with `alpha` set."""
    method: str
    mean: float
    std: float
    k: int | None = None
    alpha: float | None = None
    hyperparameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Where the row departs from the method's defaults: {"init": "zero"} in Table 6."""

    def __str__(self) -> str:
        """As the paper prints it: one decimal for the mean, two for the standard deviation."""
        return f"{self.mean:.1f} ± {self.std:.2f}"


def cells(
    *,
    table: int | None = None,
    dataset: str | None = None,
    model: str | None = None,
    topology: str | None = None,
    partition: str | None = None,
    k: int | None = None,
    alpha: float | None = None,
    method: str | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
) -> list[PublishedCell]:
    """The cells that have all the given properties, in the order of the paper; without any, all of them.

    A combination that the paper does not report gives an empty list; a value that occurs nowhere in it is an error.

    >>> [str(cell) for cell in cells(table=2, dataset="cifar-10", k=4, method="momentum-tracking")]
    ['70.7 ± 1.38']
    >>> [cell.method for cell in cells(table=5, alpha=0.1)]
    ['qg-dsgdm', 'decentlam', 'momentum-tracking']
    """
    wanted: dict[str, int | float | str | None] = {
        "table": table,
        "dataset": dataset,
        "model": model,
        "topology": topology,
        "partition": partition,
        "k": k,
        "alpha": alpha,
        "method": method,
    }
    found = [cell for cell in _all() if hyperparameters is None or cell.hyperparameters == hyperparameters]
    for name, value in wanted.items():
        if value is not None:
            _check_occurs(name, value)
            found = [cell for cell in found if getattr(cell, name) == value]
    return found


def _check_occurs(name: str, value: int | float | str) -> None:
    known = {getattr(cell, name) for cell in _all()} - {None}
    if value in known:
        return
    if isinstance(value, str) and all(isinstance(one, str) for one in known):
        raise unknown(f"{name} in the paper's tables", value, known)
    listed = ", ".join(f"{one:g}" for one in sorted(known))
    raise InputError(f"The paper's tables have no {name} {value}; they have {listed}.")


@cache
def _all() -> tuple[PublishedCell, ...]:
    return tuple(PublishedCell(**cell) for cell in json.loads(FILE.read_text(encoding="utf-8"))["cells"])
