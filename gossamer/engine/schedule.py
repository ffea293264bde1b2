"""The schedule of a run: how many rounds it has, when it is evaluated, and the step size of each round.

`lr` is a number, a function of the round, or one of the step-size schedules below, whose times are counted in epochs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, SupportsFloat

from gossamer._common import checks
from gossamer._common.checks import is_finite_number, whole_number
from gossamer.data import NodeData
from gossamer.errors import InputError, unknown

EVALUATIONS = 10
"""By default a run is evaluated at most so often, not counting the start."""
SMALLEST_PART = 500
"""Test samples of an evaluation before the last, at least; fewer would say little."""
FORWARD_PASSES = 3
"""What training on a sample costs: a forward pass, and a backward pass of twice its work."""


class StepSize(ABC):
    """The step size as a function of the epoch (a real number) and of the number of epochs in the run.

    >>> class Halving(StepSize):
    ...     def at(self, epoch, epochs):
    ...         return 0.1 * 0.5 ** int(epoch)
    >>> Halving().at(2.5, epochs=10), Halving()
    (0.025, Halving())
    """

    @abstractmethod
    def at(self, epoch: float, epochs: float) -> float:
        """The step size at `epoch` of `epochs`."""

    def __repr__(self) -> str:
        """The class and its arguments, without an address: checkpoints compare it."""
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"


@dataclass(frozen=True)
class Constant(StepSize):
    """Always `lr`.

    >>> Constant(0.1).at(epoch=3, epochs=10)
    0.1
    """

    lr: float

    def __post_init__(self) -> None:
        _check(self.lr)

    def at(self, epoch: float, epochs: float) -> float:
        """lr."""
        return self.lr


@dataclass(frozen=True)
class StepDecay(StepSize):
    """`lr`, multiplied by `factor` at each of the epochs `at_epochs`.

    >>> schedule = StepDecay(0.1, at_epochs=(500, 750))
    >>> [round(schedule.at(e, 1000), 6) for e in (0, 499.9, 500, 750)]
    [0.1, 0.1, 0.01, 0.001]
    """

    lr: float
    at_epochs: tuple[float, ...]
    factor: float = 0.1

    def __post_init__(self) -> None:
        _check(self.lr)
        if not isinstance(self.at_epochs, Collection) or not all(map(is_finite_number, self.at_epochs)):
            raise InputError(
                f"A step decay needs the epochs of its steps, as in at_epochs=(500, 750), not {self.at_epochs!r}."
            )
        if not is_finite_number(self.factor) or not 0 < self.factor <= 1:
            raise InputError(f"A step decay multiplies by a factor in (0, 1], not by {self.factor!r}; 0.1 is usual.")

    def at(self, epoch: float, epochs: float) -> float:
        """lr * factor^(number of epochs in `at_epochs` that have passed)."""
        return self.lr * self.factor ** sum(epoch >= e for e in self.at_epochs)


@dataclass(frozen=True)
class Cosine(StepSize):
    """From `lr` down to `final` along half a cosine over the whole run.

    >>> [round(Cosine(0.1).at(e, 10), 6) for e in (0, 5, 10)]
    [0.1, 0.05, 0.0]
    """

    lr: float
    final: float = 0.0

    def __post_init__(self) -> None:
        _check(self.lr)
        _check(self.final)

    def at(self, epoch: float, epochs: float) -> float:
        """final + (lr - final) (1 + cos(pi epoch/epochs))/2."""
        return self.final + (self.lr - self.final) * (1 + math.cos(math.pi * min(1.0, epoch / epochs))) / 2


@dataclass(frozen=True)
class WarmUp(StepSize):
    """Grow linearly from `start` times the step size to all of it over the first `epochs`, then follow `then`.

    >>> [WarmUp(Constant(0.1), epochs=4).at(e, 10) for e in (0, 2, 4, 9)]
    [0.0, 0.05, 0.1, 0.1]
    """

    then: StepSize
    epochs: float
    start: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.then, StepSize):
            raise InputError(
                f"A warm-up leads to a schedule such as Constant(0.1), but what follows it is {self.then!r}."
            )
        if not is_finite_number(self.epochs) or not self.epochs > 0:
            raise InputError(f"A warm-up lasts a finite number of epochs above 0, but epochs is {self.epochs!r}.")
        if not is_finite_number(self.start) or not 0 <= self.start <= 1:
            raise InputError(
                f"A warm-up starts from a fraction in [0, 1] of the step size, but start is {self.start!r}."
            )

    def at(self, epoch: float, epochs: float) -> float:
        """The step size of `then`, times a fraction that reaches 1 after the warm-up."""
        fraction = min(1.0, self.start + (1 - self.start) * epoch / self.epochs)
        return fraction * self.then.at(epoch, epochs)


_BY_NAME: dict[str, Callable[..., StepSize]] = {"constant": Constant, "step": StepDecay, "cosine": Cosine}


def get(spec: str, lr: float, warm_up: float = 0.0) -> StepSize:
    """The step-size schedule that `spec` describes, from `lr` on, after `warm_up` epochs of linear growth.

    >>> get("step:at_epochs=500/750", 0.1)
    StepDecay(lr=0.1, at_epochs=(500.0, 750.0), factor=0.1)
    >>> get("cosine", 0.1, warm_up=5)
    WarmUp(then=Cosine(lr=0.1, final=0.0), epochs=5, start=0.0)
    """
    name, rest = checks.split(spec)
    if name not in _BY_NAME:
        raise unknown("step-size schedule", name, _BY_NAME)
    schedule = _BY_NAME[name](lr, **checks.parameters("schedule", name, _BY_NAME[name], rest, given=("lr",)))
    return WarmUp(schedule, warm_up) if warm_up else schedule


Lr = float | StepSize | Callable[[int], float]


def plain_step_size(lr: Any) -> Any:
    """The step size as given, but NumPy's numbers and tensors of one number as floats.

    >>> import numpy as np
    >>> plain_step_size(np.float32(0.5))
    0.5
    """
    is_number = isinstance(lr, SupportsFloat) and not isinstance(lr, int | float | StepSize)
    if not is_number or callable(lr):
        return lr
    try:
        return float(lr)
    except (TypeError, ValueError, RuntimeError):
        return lr


def step_size_of(lr: Lr, rounds_per_epoch: int, rounds: int) -> Callable[[int], float]:
    """The step size as a function of the round. What a schedule or a function returns is checked when it is called."""
    if isinstance(lr, StepSize):
        return lambda r: _checked(lr.at(r / rounds_per_epoch, rounds / rounds_per_epoch), r)
    if callable(lr):
        return lambda r: _checked(lr(r), r)
    constant = Constant(lr)
    return lambda r: constant.lr


def _checked(value: object, round: int) -> float:
    """What was returned for a round as a float; NumPy's numbers and tensors of one number are accepted."""
    try:
        number = float(value) if isinstance(value, SupportsFloat) and not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise InputError(
            f"The step size of round {round} is {value!r}, but a step size must be a finite number, 0 or above; "
            f"correct the function or the schedule given as lr."
        )
    return number


def _check(lr: float) -> None:
    if isinstance(lr, bool) or not isinstance(lr, int | float) or not lr >= 0 or math.isinf(lr):
        raise InputError(f"The step size is {lr!r}, but a step size must be a finite number, 0 or above; try 0.01.")


@dataclass(frozen=True)
class Schedule:
    """When a run ends and is evaluated, and its step sizes, all in rounds; the same for simulated and real nodes."""

    rounds_per_epoch: int
    rounds: int
    rounds_between_evaluations: int
    test_samples: int
    """How many test samples an evaluation before the last uses: `NodeData.test_part`. The last one uses all.

    With `evaluate="own"` all do."""
    step_size: Callable[[int], float]

    def is_evaluated(self, round: int) -> bool:
        """Whether the run is evaluated after `round` rounds; the start and the end always are."""
        return round % self.rounds_between_evaluations == 0 or round == self.rounds


def schedule_of(
    data: NodeData,
    batch_size: int,
    lr: Lr,
    *,
    epochs: float | None = None,
    rounds: int | None = None,
    evaluate_every: float | None = None,
    evaluations: int | None = None,
    evaluate: str | None = None,
) -> Schedule:
    """The schedule of a run of `epochs` or `rounds`.

    It is evaluated every so many epochs, or so many times in all, on the whole test set. By default evaluations are
    limited, see `_limited`.

    >>> from gossamer import data
    >>> digits = data.load("digits").split(data.partition.iid(nodes=4))
    >>> schedule = schedule_of(digits, batch_size=32, lr=0.1, epochs=2, evaluate_every=0.5)
    >>> schedule.rounds_per_epoch, schedule.rounds, [r for r in range(23) if schedule.is_evaluated(r)]
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
    if evaluate_every is not None and evaluations is not None:
        raise InputError("Say how often the run is evaluated: give either evaluate_every or evaluations.")
    own = data.evaluation(evaluate) == "own"
    samples = len(data.all_own_tests[1]) if own else len(data.test[1])
    if evaluate_every is not None:
        between = rounds_in(evaluate_every, per_epoch, "evaluate_every")
    elif evaluations is not None:
        between = max(1, round(total / whole_number(evaluations, "the number of evaluations", least=1)))
    else:
        between, part = _limited(data, batch_size, total, own)
        samples = samples if own else part
    return Schedule(per_epoch, total, between, samples, step_size_of(lr, per_epoch, total))


def _limited(data: NodeData, batch_size: int, rounds: int, own: bool = False) -> tuple[int, int]:
    """The rounds between evaluations, and the test samples of each before the last.

    All evaluations together are at most a fifth of the run's forward passes, training on a sample counting as three:
    first the evaluations before the last use fewer samples, down to `SMALLEST_PART`, then there are fewer of them. The
    start is always evaluated, and the last evaluation always uses the whole test and validation sets, even in a run so
    short that these two are more than a fifth. Nodes that are tested on their `own` data use all of it every time.
    """
    models, tests, validations = data.nodes + 1, len(data.test[1]), len(data.partition.validation)
    if own:
        # Every sample is seen by its node's model and by the averaged one.
        tests = -(-2 * len(data.all_own_tests[1]) // models)
    # Batches may be smaller than `batch_size`: the last one of an epoch, and those of a node that holds less.
    per_round = min(sum(data.sizes) // data.rounds_per_epoch(batch_size), sum(min(batch_size, n) for n in data.sizes))
    # A fifth of everything is a quarter of the rest.
    left = FORWARD_PASSES * per_round * rounds // 4 // models - tests - validations
    between = -(-rounds // EVALUATIONS)
    samples = tests if own else min(tests, max(SMALLEST_PART, left // -(-rounds // between)))
    affordable = max(1, left // samples)
    return max(between, -(-rounds // affordable)), samples


def rounds_in(epochs: float, rounds_per_epoch: int, name: str) -> int:
    """The rounds of so many epochs, at least one; `name` is the argument that an error quotes."""
    if not is_finite_number(epochs) or epochs <= 0:
        raise InputError(f"{name} is a finite number of epochs above 0, not {epochs!r}.")
    return max(1, round(epochs * rounds_per_epoch))
