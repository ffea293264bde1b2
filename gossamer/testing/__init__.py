"""The conformance kit: does a method do what it says?"""

from gossamer.testing.kit import ConformanceError, ConformanceReport, PropertyResult, check_method, kit_graphs
from gossamer.testing.trial import Trial

__all__ = ["ConformanceError", "ConformanceReport", "PropertyResult", "Trial", "check_method", "kit_graphs"]
