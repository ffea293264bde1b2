"""What a node computes: one update rule per file, and the contract they share."""

from gossamer.methods.abm import ABm
from gossamer.methods.allreduce import AllReduceSGDm
from gossamer.methods.choco import ChocoSGD, ChocoSGDm
from gossamer.methods.contract import Facts, Method, State, find, get, names, resolve
from gossamer.methods.d2 import D2
from gossamer.methods.decentlam import DecentLaM
from gossamer.methods.dsgd import DSGD, DSGDm
from gossamer.methods.edm import EDM
from gossamer.methods.gtadam import GTAdam
from gossamer.methods.k_gt import KGT
from gossamer.methods.led import LED
from gossamer.methods.momentum_tracking import GradientTracking, MomentumTracking
from gossamer.methods.motef import BEER, MoTEF
from gossamer.methods.qg_dsgdm import QGDSGDm
from gossamer.methods.relaysum import RelaySum, RelaySumM
from gossamer.methods.tracking import TrackingState
from gossamer.topology import Needs

__all__ = [
    "BEER",
    "BUILT_IN",
    "D2",
    "DSGD",
    "EDM",
    "FOR_SLOW_LINKS",
    "KGT",
    "LED",
    "ABm",
    "AllReduceSGDm",
    "ChocoSGD",
    "ChocoSGDm",
    "DSGDm",
    "DecentLaM",
    "Facts",
    "GTAdam",
    "GradientTracking",
    "Method",
    "MoTEF",
    "MomentumTracking",
    "Needs",
    "QGDSGDm",
    "RelaySum",
    "RelaySumM",
    "State",
    "TrackingState",
    "find",
    "get",
    "names",
    "resolve",
]

BUILT_IN = (
    "dsgd",
    "dsgdm",
    "qg-dsgdm",
    "decentlam",
    "gradient-tracking",
    "momentum-tracking",
    "abm",
    "gtadam",
    "d2",
    "relaysum",
    "relaysum-m",
    "all-reduce-sgdm",
    "edm",
    "led",
    "k-gt",
    "choco-sgd",
    "choco-sgdm",
    "beer",
    "motef",
)
"""The names of the methods that come with Gossamer, in the order in which tables list them."""

FOR_SLOW_LINKS = ("edm", "led", "k-gt", "choco-sgd", "choco-sgdm", "beer", "motef")
"""Those that are not in the paper's comparison: they send less."""
