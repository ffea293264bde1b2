"""How the step size changes in the course of a run.

`lr` is a number, a function of the round, or one of the schedules below, whose times are counted in epochs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, SupportsFloat

from gossamer._common import specs
from gossamer._common.checks import is_finite_number
from gossamer.errors import InputError, unknown


class StepSize(ABC):
    """A schedule: the step size as a function of the epoch (a real number) and of the number of epochs in the run.

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
        """The class and what it was made with; without an address, because checkpoints compare it."""
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
    """Grow linearly from `start` times the step size to the whole of it over the first `epochs`, then follow `then`.

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
        numbers = is_finite_number(self.epochs) and is_finite_number(self.start)
        if not numbers or not self.epochs > 0 or not 0 <= self.start <= 1:
            raise InputError(
                f"A warm-up lasts more than 0 epochs and starts from a fraction in [0, 1] of the step size, but it has "
                f"epochs={self.epochs!r} and start={self.start!r}."
            )

    def at(self, epoch: float, epochs: float) -> float:
        """The step size of `then`, times a fraction that reaches 1 after the warm-up."""
        fraction = min(1.0, self.start + (1 - self.start) * epoch / self.epochs)
        return fraction * self.then.at(epoch, epochs)


_BY_NAME: dict[str, Callable[..., StepSize]] = {"constant": Constant, "step": StepDecay, "cosine": Cosine}


def get(spec: str, lr: float, warm_up: float = 0.0) -> StepSize:
    """The schedule that `spec` describes, of the step size `lr`, after `warm_up` epochs of linear growth.

    >>> get("step:at_epochs=500/750", 0.1)
    StepDecay(lr=0.1, at_epochs=(500.0, 750.0), factor=0.1)
    >>> get("cosine", 0.1, warm_up=5)
    WarmUp(then=Cosine(lr=0.1, final=0.0), epochs=5, start=0.0)
    """
    name, rest = specs.split(spec)
    if name not in _BY_NAME:
        raise unknown("step-size schedule", name, _BY_NAME)
    schedule = _BY_NAME[name](lr, **specs.parameters("schedule", name, _BY_NAME[name], rest, given=("lr",)))
    return WarmUp(schedule, warm_up) if warm_up else schedule


Lr = float | StepSize | Callable[[int], float]


def plain_step_size(lr: Any) -> Any:
    """The step size as it was given, but NumPy's numbers and tensors of one number as floats.

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
    """The step size as a function of the round, whatever way it was given.

    What a schedule or a function answers is checked when it is asked.
    """
    if isinstance(lr, StepSize):
        return lambda r: _checked(lr.at(r / rounds_per_epoch, rounds / rounds_per_epoch), r)
    if callable(lr):
        return lambda r: _checked(lr(r), r)
    constant = Constant(lr)
    return lambda r: constant.lr


def _checked(value: object, round: int) -> float:
    """The answer for a round as a float: numpy's numbers and tensors of one number are as good as any."""
    try:
        number = float(value) if isinstance(value, SupportsFloat) and not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise InputError(
            f"The step size of round {round} is {value!r}, but a step size must be a finite number, 0 or above; mend "
            f"the function or the schedule given as lr."
        )
    return number


def _check(lr: float) -> None:
    if isinstance(lr, bool) or not isinstance(lr, int | float) or not lr >= 0 or math.isinf(lr):
        raise InputError(f"The step size is {lr!r}, but a step size must be a finite number, 0 or above; try 0.01.")
