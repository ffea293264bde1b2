"""Losses and metrics: what the nodes minimize, and what is reported, by name or as functions of (outputs, targets).

    loss                    outputs        targets                                        metric by default
    "cross-entropy"         [B, C]         class numbers, integers [B]                    "accuracy"
    "token-cross-entropy"   [B, ..., C]    class numbers [B, ...], -100: not counted      "perplexity"
    "mse"                   [B, ...]       numbers [B, ...]                               "mae"
    "bce"                   [B, ...]       0 or 1 for every label [B, ...]                "f1"
    a function              any            any                                            "loss"

A loss gives the mean over the batch. A metric is exact over a whole test set: it is never a mean of batch means.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, SupportsFloat

import torch
from torch import Tensor, nn
from torch.nn import functional

from gossamer._common.checks import check_switch, normalized
from gossamer._common.formatting import NOT_METRICS, USUAL_METRIC, MetricFacts
from gossamer.errors import GossamerError, InputError, unknown

__all__ = ["Loss", "Metric", "register"]

NOT_COUNTED = -100
"""The target of a token that does not count (padding), as in torch."""

Function = Callable[[Tensor, Tensor], Any]


@dataclass(frozen=True)
class Loss:
    """A differentiable loss of (outputs, targets), the mean over the batch.

    `summed` gives the sum and the number of terms, for an exact mean over many batches; without it every sample counts
    the same.

    >>> Loss("huber", functional.huber_loss)
    Loss('huber')
    """

    name: str
    function: Function
    summed: Callable[[Tensor, Tensor], tuple[Tensor, int]] | None = None
    takes: str = ""
    """What outputs and targets it takes, as part of a sentence."""

    def __post_init__(self) -> None:
        _check_function("loss", self.name, self.function)

    def __repr__(self) -> str:
        return f"Loss({self.name!r})"

    def sums(self, outputs: Tensor, targets: Tensor) -> list[float]:
        """[sum, number of terms] of a batch."""
        if self.summed is None:
            return [float(self.function(outputs, targets)) * len(targets), float(len(targets))]
        total, terms = self.summed(outputs, targets)
        return [float(total), float(terms)]


@dataclass(frozen=True)
class Metric:
    """A figure of merit of (outputs, targets), and whether more of it is better.

    Without `value`, `function(outputs, targets)` is called once with all outputs of a test set, and gives a number.
    With it, `function` gives one or several sums for each batch, and `value(sums)` makes the metric of their totals:
    nothing but the sums is kept in memory, and real nodes share the work. `percent`: it is a share of 1 and shown in
    percent.

    >>> Metric("rmse", lambda o, t: ((o - t).square().sum(), t.numel()), False, value=lambda s: (s[0] / s[1]) ** 0.5)
    Metric('rmse', lower is better)
    """

    name: str
    function: Function
    higher_is_better: bool
    percent: bool = False
    value: Callable[[list[float]], float] | None = None

    def __post_init__(self) -> None:
        _check_function("metric", self.name, self.function)
        check_switch(f"The metric '{self.name}'", "higher_is_better", self.higher_is_better)
        if not self.name.isidentifier() or (self.name in NOT_METRICS and self.function is not _nothing):
            raise InputError(
                f"A metric needs a name of letters, digits and underscores that no other figure of a run has, "
                f"not {self.name!r}; try 'my_metric'."
            )

    def __repr__(self) -> str:
        return f"Metric({self.name!r}, {self.facts.direction})"

    @property
    def facts(self) -> MetricFacts:
        """What tables and reports need to know."""
        return MetricFacts(self.name, self.higher_is_better, self.percent)

    def sums(self, outputs: Tensor, targets: Tensor) -> list[float]:
        """What a batch adds to the totals; only of a metric with `value`."""
        found = self.function(outputs, targets)
        return [self._number(v) for v in (found if isinstance(found, tuple | list) else [found])]

    def of_sums(self, totals: list[float]) -> float:
        """The metric of the totals."""
        return self._number(self.value(totals) if self.value else totals[0])

    def of_all(self, outputs: Tensor, targets: Tensor) -> float:
        """The metric of all outputs at once."""
        return self._number(self.function(outputs, targets))

    def _number(self, value: Any) -> float:
        try:
            if isinstance(value, SupportsFloat) and not isinstance(value, str):
                return float(value)
        except (TypeError, ValueError, RuntimeError):
            pass
        shown = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise InputError(f"The metric '{self.name}' gives {shown}, which is not a number; let it return one number.")


@dataclass(frozen=True)
class Task:
    """A loss and a metric: what a run minimizes and reports."""

    loss: Loss
    metric: Metric

    @property
    def is_classification(self) -> bool:
        """Whether this is the default, which compiled kernels know."""
        return self.loss is LOSSES["cross-entropy"] and self.metric is METRICS["accuracy"]

    @property
    def has_sums(self) -> bool:
        """Whether the metric is made of sums, so that parts of a test set can be scored apart."""
        return self.metric.value is not None or self.metric is METRICS["loss"]

    def check(self, outputs: Tensor, targets: Tensor, all_targets: Tensor) -> int:
        """Refuse outputs and targets of a trial batch that do not fit; returns how many sums the metric has."""
        what = f"outputs {_form(outputs)} with targets {_form(targets)}"
        trial = outputs.detach().clone().requires_grad_(outputs.is_floating_point())
        loss, metric = self.loss, self.metric
        try:
            with warnings.catch_warnings():
                # torch only warns where it broadcasts [B, 1] and [B] to [B, B], which nobody means.
                warnings.filterwarnings("error", message="Using a target size")
                value = loss.function(trial, targets)
        except Exception as error:
            needs = f"it takes {loss.takes}" if loss.takes else _first_line(error)
            raise InputError(
                f"The loss '{loss.name}' cannot use {what}: {needs}; change the model's last layer, the targets or the "
                f"loss."
            ) from error
        if not isinstance(value, Tensor) or value.dim() or not value.requires_grad:
            shown = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
            if isinstance(value, Tensor) and not value.dim():
                shown = "a number that does not depend on the outputs"
            raise InputError(
                f"The loss '{loss.name}' gives {shown} for {what}; let it return one number that autograd can "
                f"differentiate, the mean over the batch."
            )
        self._check_range(outputs, all_targets)
        try:
            with torch.no_grad():
                if metric.value is not None:
                    return len(metric.sums(outputs, targets))
                metric.of_all(outputs, targets)
        except GossamerError:
            raise
        except Exception as error:
            raise InputError(
                f"The metric '{metric.name}' cannot use {what}: {_first_line(error)}; name another metric."
            ) from error
        return 0

    def _check_range(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse targets anywhere in the data that a named loss would misread."""
        classes = outputs.shape[-1]
        counted = targets
        if self.loss is LOSSES["bce"]:
            lowest, highest, words = 0, 1, "between 0 and 1"
        elif self.loss is LOSSES["token-cross-entropy"]:
            counted = targets[targets != NOT_COUNTED]
            lowest, highest, words = 0, classes - 1, f"0 to {classes - 1}, because the model has {classes} outputs"
        else:
            return
        if counted.numel() and not (counted.min() >= lowest and counted.max() <= highest):
            raise InputError(
                f"The targets run from {counted.min():g} to {counted.max():g}, but the loss '{self.loss.name}' needs "
                f"targets {words}."
            )


class Tally:
    """Accumulates loss and metric of one model over batches.

    >>> tally = Tally(task_of("mse", "mae"))
    >>> tally.add(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0]))
    >>> tally.add(torch.tensor([6.0]), torch.tensor([0.0]))
    >>> tally.metric, round(tally.loss, 4)
    (3.0, 13.6667)
    """

    def __init__(self, task: Task, sums: list[float] | None = None) -> None:
        self._task = task
        self.sums = sums or []
        """[loss, terms, ...the metric's]: may be added to another tally's."""
        self._kept: list[tuple[Tensor, Tensor]] = []

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Count a batch."""
        loss, metric = self._task.loss, self._task.metric
        found = loss.sums(outputs, targets)
        if metric.value is not None:
            found += metric.sums(outputs, targets)
        elif not self._task.has_sums:
            self._kept.append((outputs, targets))
        self.sums = [a + b for a, b in zip(self.sums, found, strict=True)] if self.sums else found

    @property
    def loss(self) -> float:
        """The mean loss; 0 of nothing."""
        return self.sums[0] / max(1.0, self.sums[1])

    @property
    def metric(self) -> float:
        """The metric of everything that was added."""
        metric = self._task.metric
        if metric is METRICS["loss"]:
            return self.loss
        if metric.value is not None:
            return metric.of_sums(self.sums[2:])
        with torch.inference_mode():
            return metric.of_all(*(torch.cat(part) for part in zip(*self._kept, strict=True)))


def task_of(loss: "str | Loss | Function | None" = None, metric: "str | Metric | Function | None" = None) -> Task:
    """The task of a loss and a metric, each a name, a function or an object; classification by default.

    >>> task_of("mse"), task_of(functional.cross_entropy).is_classification
    (Task(loss=Loss('mse'), metric=Metric('mae', lower is better)), True)
    >>> task_of("msee")
    Traceback (most recent call last):
    ...
    gossamer.errors.InputError: There is no loss 'msee'; did you mean 'mse'? Known: bce, cross-entropy, mse, ...
    """
    chosen = _loss(loss)
    return Task(chosen, _metric(USUAL_METRIC.get(chosen.name, "loss") if metric is None else metric))


def register(thing: "Loss | Metric") -> "Loss | Metric":
    """Make a loss or a metric known by its name to experiments in TOML and on the command line (`--load FILE`)."""
    if not isinstance(thing, Loss | Metric):
        raise InputError(
            f"Register a loss or a metric, not {thing!r}: gossamer.tasks.register(gossamer.Metric('name', function, "
            f"higher_is_better=True))."
        )
    known: dict[str, Any] = LOSSES if isinstance(thing, Loss) else METRICS
    name = normalized(thing.name) if isinstance(thing, Loss) else thing.name
    if name in _BUILT_IN:
        raise InputError(f"The {type(thing).__name__.lower()} '{name}' is built in; choose another name.")
    known[name] = thing
    return thing


def own() -> list[str]:
    """The names of registered losses and metrics."""
    return [name for name in [*LOSSES, *METRICS] if name not in _BUILT_IN]


def _loss(loss: "str | Loss | Function | None") -> Loss:
    if loss is None or loss is functional.cross_entropy:
        return LOSSES["cross-entropy"]
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        if normalized(loss) not in LOSSES:
            raise unknown("loss", loss, LOSSES)
        return LOSSES[normalized(loss)]
    if isinstance(loss, nn.Module) and any(p.requires_grad for p in loss.parameters()):
        raise InputError("The loss has parameters of its own, which nobody would train; make them part of the model.")
    return Loss(_name(loss), loss)


def _metric(metric: "str | Metric | Function") -> Metric:
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        if metric not in METRICS:
            raise unknown("metric", metric, METRICS)
        return METRICS[metric]
    name = _name(metric)
    name = name if name.isidentifier() and name not in NOT_METRICS else "metric"
    return Metric(name, metric, higher_is_better=bool(getattr(metric, "higher_is_better", True)))


def _name(function: object) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _check_function(kind: str, name: object, function: object) -> None:
    if not isinstance(name, str) or not name:
        raise InputError(f"The name of a {kind} is a word, not {name!r}.")
    if not callable(function):
        raise InputError(
            f"The {kind} must be a function of (outputs, targets) or the name of one, such as "
            f"'{'mse' if kind == 'loss' else 'mae'}', not {function!r}."
        )


def _form(tensor: object) -> str:
    return (
        f"{list(tensor.shape)} ({tensor.dtype})" if isinstance(tensor, Tensor) else f"of type {type(tensor).__name__}"
    )


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _alike(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and targets of one shape and type; [B, 1] and [B] are the same, and nothing is broadcast."""
    if outputs.shape == (*targets.shape, 1):
        outputs = outputs.squeeze(-1)
    elif targets.shape == (*outputs.shape, 1):
        targets = targets.squeeze(-1)
    if outputs.shape != targets.shape:
        raise ValueError(f"outputs {list(outputs.shape)} and targets {list(targets.shape)} differ in shape")
    return outputs, targets.to(outputs.dtype)


def _classes(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs [n, C] and class numbers [n] of any number of samples and places."""
    if targets.is_floating_point() or outputs.shape[:-1] != targets.shape:
        raise ValueError("targets must be class numbers, one for every row of outputs")
    return outputs.flatten(0, -2), targets.flatten().long()


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    if targets.is_floating_point() or targets.dim() != 1:
        raise ValueError("targets must be class numbers")
    return functional.cross_entropy(outputs, targets)


def _token_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    total, terms = _summed_tokens(outputs, targets)
    return total / max(1, terms)


def _summed_classes(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    return functional.cross_entropy(outputs, targets, reduction="sum"), len(targets)


def _summed_tokens(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    rows, known = _classes(outputs, targets)
    loss = functional.cross_entropy(rows, known, ignore_index=NOT_COUNTED, reduction="sum")
    return loss, int((known != NOT_COUNTED).sum())


def _elementwise(loss: Callable[..., Tensor]) -> tuple[Function, Callable[[Tensor, Tensor], tuple[Tensor, int]]]:
    """The mean, and the sum with its number of terms, over all elements."""

    def mean(outputs: Tensor, targets: Tensor) -> Tensor:
        return loss(*_alike(outputs, targets))

    def summed(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
        return loss(*_alike(outputs, targets), reduction="sum"), targets.numel()

    return mean, summed


def _right(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Right predictions and all: classes by the largest output, labels 0 and 1 by the sign."""
    if outputs.shape == targets.shape:
        right = (outputs > 0) == (targets > 0.5)
        return right.sum(), torch.tensor(right.numel())
    rows, known = _classes(outputs, targets)
    counted = known != NOT_COUNTED
    return ((rows.argmax(1) == known) & counted).sum(), counted.sum()


def _errors(outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    outputs, targets = _alike(outputs, targets)
    return (outputs - targets).abs().double().sum(), targets.numel()


def _hits(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Labels that are rightly on, wrongly on, and wrongly off; an output above 0 is on."""
    outputs, targets = _alike(outputs, targets)
    on, true = outputs > 0, targets > 0.5
    return (on & true).sum(), (on & ~true).sum(), (~on & true).sum()


def _nothing(outputs: Tensor, targets: Tensor) -> float:
    """Stands for the loss, which is measured anyway."""
    return 0.0


def _ratio(sums: list[float]) -> float:
    return sums[0] / max(1.0, sums[1])


def _exp_ratio(sums: list[float]) -> float:
    mean = _ratio(sums)
    return math.exp(mean) if mean < 700 else math.inf if not math.isnan(mean) else mean


def _f1(sums: list[float]) -> float:
    """2 TP / (2 TP + FP + FN) over all labels together (the micro average); 0 if nothing is or should be on."""
    return 2 * sums[0] / max(1.0, 2 * sums[0] + sums[1] + sums[2])


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss(
            "cross-entropy", _cross_entropy, _summed_classes,
            "outputs [batch, classes] and class numbers, integers [batch]",
        ),
        Loss(
            "token-cross-entropy", _token_cross_entropy, _summed_tokens,
            "outputs [batch, places, classes] and class numbers, integers [batch, places]",
        ),
        Loss("mse", *_elementwise(functional.mse_loss), "outputs and targets of one shape"),
        Loss(
            "bce", *_elementwise(functional.binary_cross_entropy_with_logits),
            "outputs and targets of one shape, a 0 or 1 for every label",
        ),
    )
}  # fmt: skip

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", _right, True, percent=True, value=_ratio),
        Metric("mae", _errors, False, value=_ratio),
        Metric("perplexity", _summed_tokens, False, value=_exp_ratio),
        Metric("f1", _hits, True, value=_f1),
        Metric("loss", _nothing, False),
    )
}
"""Those that can be named; "loss" is the mean of the loss on the test set."""

_BUILT_IN = frozenset([*LOSSES, *METRICS])
