"""What the paper proves, as numbers: rates, the explicit bound, measured constants, and a check of the proof.

>>> from gossamer import theory
>>> ring = theory.ProblemConstants(nodes=25, p=0.04145, smoothness=25.0, gap=1.0, sigma2=1.0)
>>> theory.largest_step(ring.p, beta=0.9, smoothness=ring.smoothness) < 1e-10
True
"""

from gossamer.theory import rates
from gossamer.theory.bound import Bound, bound, largest_step, rounds_needed
from gossamer.theory.constants import ProblemConstants
from gossamer.theory.measure import gradient_dissimilarity, heterogeneity, noise
from gossamer.theory.proof_check import ProofCheck, Statement, check_proof
from gossamer.theory.rates import Rate

__all__ = [
    "Bound",
    "ProblemConstants",
    "ProofCheck",
    "Rate",
    "Statement",
    "bound",
    "check_proof",
    "gradient_dissimilarity",
    "heterogeneity",
    "largest_step",
    "noise",
    "rates",
    "rounds_needed",
]
