"""How long a run is, when it is evaluated and how large its steps are: all of it in rounds."""

from collections.abc import Callable
from dataclasses import dataclass

from gossamer._common.checks import is_finite_number, whole_number
from gossamer.data import NodeData
from gossamer.engine.step_sizes import Lr, step_size_of
from gossamer.errors import InputError

EVALUATIONS = 10


@dataclass(frozen=True)
class Pace:
    """The times of a run, the same for simulated and for real nodes."""

    per_epoch: int
    """Rounds of an epoch."""
    total: int
    """Rounds of the run."""
    between_evaluations: int
    step_size: Callable[[int], float]

    def is_evaluated(self, round: int) -> bool:
        """Whether the run is evaluated after `round` rounds; the start and the end always are."""
        return round % self.between_evaluations == 0 or round == self.total


def pace_of(
    data: NodeData,
    batch_size: int,
    lr: Lr,
    *,
    epochs: float | None = None,
    rounds: int | None = None,
    evaluate_every: float | None = None,
) -> Pace:
    """The pace of a run of `epochs` or `rounds`, evaluated every so many epochs (by default at most ten times).

    >>> from gossamer import data
    >>> digits = data.load("digits").split(data.partition.iid(nodes=4))
    >>> pace = pace_of(digits, batch_size=32, lr=0.1, epochs=2, evaluate_every=0.5)
    >>> pace.per_epoch, pace.total, [r for r in range(pace.total + 1) if pace.is_evaluated(r)]
    (11, 22, [0, 6, 12, 18, 22])
    """
    per_epoch = data.rounds_per_epoch(batch_size)
    if (epochs is None) == (rounds is None):
        raise InputError("Say how long the run is: give either epochs or rounds.")
    if rounds is not None:
        total = whole_number(rounds, "the number of rounds", least=None)
    elif is_finite_number(epochs):
        total = round(epochs * per_epoch)
    else:
        raise InputError(f"epochs is {epochs!r}, but a run lasts a finite number of epochs above 0.")
    if total < 1:
        raise InputError(f"A run needs at least one round, but it has {total}.")
    between = -(-total // EVALUATIONS)
    if evaluate_every is not None:
        between = interval(evaluate_every, per_epoch, "evaluate_every")
    return Pace(per_epoch, total, between, step_size_of(lr, per_epoch, total))


def interval(epochs: float, per_epoch: int, name: str) -> int:
    """The rounds of so many epochs, at least one; `name` is the setting that an error quotes."""
    if not is_finite_number(epochs) or epochs <= 0:
        raise InputError(f"{name} is a finite number of epochs above 0, not {epochs!r}.")
    return max(1, round(epochs * per_epoch))
