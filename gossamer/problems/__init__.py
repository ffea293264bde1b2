"""Objectives with known answers, to measure methods against."""

from gossamer.problems.contract import Problem
from gossamer.problems.logistic import Logistic
from gossamer.problems.nonconvex_cosine import NonconvexCosine
from gossamer.problems.quadratic import Quadratic

__all__ = ["Logistic", "NonconvexCosine", "Problem", "Quadratic"]
