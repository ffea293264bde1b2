"""The same number of steps on every node, however much data each has."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from gossamer.errors import InputError

Batch = TypeVar("Batch")


def rounds(loader: Iterable[Batch], n: int) -> Iterator[Batch]:
    """`n` batches of `loader`, starting it again as often as needed.

    Rounds are synchronous: a node that ran out of data earlier than the others would leave them waiting. A sampler with
    `set_epoch` is told the number of the pass.

    >>> list(rounds([1, 2, 3], 5))
    [1, 2, 3, 1, 2]
    """
    if n < 0:
        raise InputError(f"The number of rounds is {n}, but it cannot be below 0.")
    return _cycle(loader, n)


def _cycle(loader: Iterable[Batch], n: int) -> Iterator[Batch]:
    given = epoch = 0
    while given < n:
        set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        before = given
        for batch in loader:
            yield batch
            given += 1
            if given == n:
                return
        if given == before:
            raise InputError(
                f"The loader gave no batch in pass {epoch}, so {n} rounds cannot be made of it; an iterator that can "
                f"be read only once must be given as a list or a DataLoader."
            )
        epoch += 1
