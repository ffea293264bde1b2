"""What one evaluation of a run measured: the type of a row of figures, and which of them is the run's metric."""

import math
from dataclasses import dataclass
from typing import Any

from gossamer._common.formatting import NONE, mean_std

Row = dict[str, Any]
"""Figures by name: numbers, None where there is nothing to measure, and lists with a number per node."""

USUAL_METRIC = {"cross-entropy": "accuracy", "mse": "mae", "token-cross-entropy": "perplexity", "bce": "f1"}
"""The metric of a run that names only its loss; "loss" for any other."""


@dataclass(frozen=True)
class MetricFacts:
    """What everything that shows, ranks or selects must know of a metric; rows name their figures after it.

    >>> mae = MetricFacts("mae", higher_is_better=False, percent=False)
    >>> mae.worst({"mae": 0.2, "mae_min": 0.1, "mae_max": 0.4}), mae.shown(0.2, 0.01), mae.goodness(0.2)
    (0.4, '0.2 ± 0.01', -0.2)
    >>> MetricFacts().shown(0.7204), MetricFacts().with_unit(0.7204)
    ('72.0', '72.0 %')
    """

    name: str = "accuracy"
    higher_is_better: bool = True
    percent: bool = True
    """Whether it is a share of 1 that is shown in percent."""

    @property
    def scale(self) -> float:
        """What a value is multiplied by where it is shown."""
        return 100.0 if self.percent else 1.0

    @property
    def title(self) -> str:
        """The name with its unit, for headings and axes."""
        return f"{self.name} (%)" if self.percent else self.name

    @property
    def worst_value(self) -> float:
        """Worse than anything that can be measured."""
        return -math.inf if self.higher_is_better else math.inf

    def goodness(self, value: float) -> float:
        """The value, or its negative, so that more is better."""
        return value if self.higher_is_better else -value

    def worst_of(self, values: "list[float]") -> float:
        """The worst of several values; nan of none."""
        return min(values, key=self.goodness, default=math.nan)

    def worst(self, row: Row) -> float | None:
        """The worst node's figure in a row; None where it was not measured."""
        return row.get(f"{self.name}_{'min' if self.higher_is_better else 'max'}")

    def best(self, row: Row) -> float | None:
        """The best node's figure in a row; None where it was not measured."""
        return row.get(f"{self.name}_{'max' if self.higher_is_better else 'min'}")

    def shown(self, mean: float | None, std: float | None = None) -> str:
        """A value as tables show it, without its unit."""
        if self.percent:
            return mean_std(mean, std, scale=100)
        if mean is None or not math.isfinite(mean):
            return NONE
        return f"{mean:.4g}" if std is None or not math.isfinite(std) else f"{mean:.4g} ± {std:.2g}"

    def with_unit(self, mean: float | None, std: float | None = None) -> str:
        """A value as sentences show it."""
        text = self.shown(mean, std)
        return f"{text} %" if self.percent and text != NONE else text


ACCURACY = MetricFacts()
"""The metric of runs that name none."""
