"""The conformance kit: does a method do what it says?"""

from gossamer.testing.kit import ConformanceError, Report, Row, check_method, kit_graphs
from gossamer.testing.setting import Setting

__all__ = ["ConformanceError", "Report", "Row", "Setting", "check_method", "kit_graphs"]
