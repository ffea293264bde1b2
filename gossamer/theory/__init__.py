"""What the paper proves, as numbers: rates, the explicit bound, measured constants, and a check of the proof.

>>> from gossamer import theory
>>> setting = theory.Setting(nodes=25, p=0.04145, smoothness=25.0, gap=1.0, sigma2=1.0)
>>> theory.largest_step(setting.p, beta=0.9, smoothness=setting.smoothness) < 1e-10
True
"""

from gossamer.theory import rates
from gossamer.theory.bound import Bound, bound, largest_step, rounds_needed
from gossamer.theory.check import check
from gossamer.theory.measure import gradient_dissimilarity, heterogeneity, noise
from gossamer.theory.rates import Rate
from gossamer.theory.report import Report, Row
from gossamer.theory.setting import Setting

__all__ = [
    "Bound",
    "Rate",
    "Report",
    "Row",
    "Setting",
    "bound",
    "check",
    "gradient_dissimilarity",
    "heterogeneity",
    "largest_step",
    "noise",
    "rates",
    "rounds_needed",
]
