"""The type of a row of figures: what one evaluation of a run measured."""

from typing import Any

Row = dict[str, Any]
"""Figures by name: numbers, None where there is nothing to measure, and lists with a number per node."""
