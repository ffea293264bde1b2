"""What the benchmarks measured, from the JSON that `make bench` writes."""

import json
from pathlib import Path
from typing import Any

from method_blocks import table

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "benchmarks"
RECORDS = ROOT / "results" / "benchmarks"
UNITS = {"ratio": (1, ""), "s": (1, " s"), "ms": (1, " ms"), "share": (100, " %")}
"""By what a value is multiplied for the eye, and what is written behind it."""


def benchmarks() -> str:
    """Every measurement that is recorded, and which benchmarks have no record.

    Times without a limit are left out: they tell more of the machine than of the code, and stay in the JSON.
    """
    names = {path.stem for path in SCRIPTS.glob("[a-z]*.py")} | {path.stem for path in RECORDS.glob("*.json")}
    rows = [row for name in sorted(names) for row in _rows(name)]
    return table(["benchmark", "what", "measured", "limit", "met"], rows)


def _rows(name: str) -> list[list[str]]:
    record = RECORDS / f"{name}.json"
    if not record.exists():
        return [[f"`{name}`", "–", "not run", "–", "–"]]
    measurements = json.loads(record.read_text(encoding="utf-8"))["measurements"]
    return [[f"`{name}`", *_cells(m)] for m in measurements if m["limit"] is not None or m["unit"] not in ("s", "ms")]


def _cells(m: dict[str, Any]) -> list[str]:
    factor, unit = UNITS[m["unit"]]
    digits = 3 if m["unit"] == "ratio" else 1
    measured = f"{factor * m['value']:.{digits}f}{unit}"
    if m["limit"] is None:
        return [m["what"], measured, "–", "–"]
    limit = f"{'≤' if m['at_most'] else '≥'} {factor * m['limit']:g}{unit}"
    return [m["what"], measured, limit, "yes" if m["met"] else "**missed**"]
