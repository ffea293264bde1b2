"""Shared by all benchmarks: measurements with their limits, and the option `--json FILE` that records them.

A script adds its own options to a parser, reads them with `options_of`, prints each measurement (a `Table` does), and
ends with `finish`.
"""

import json
import shlex
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gossamer._common.files import check_writable, write_text
from gossamer.errors import GossamerError


@dataclass(frozen=True)
class Measurement:
    """A number and its limit, if it has one: value ≤ limit, or value ≥ limit if not `at_most`.

    `strict` excludes the limit itself. `case` names the setting, for scripts with several.
    """

    what: str
    value: float
    unit: Literal["ratio", "s", "ms", "share", "GFLOP/s"] = "ratio"
    limit: float | None = None
    at_most: bool = True
    strict: bool = False
    case: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the value is within the limit; None without a limit."""
        if self.limit is None:
            return None
        if self.value == self.limit:
            return not self.strict
        return self.value < self.limit if self.at_most else self.value > self.limit

    @property
    def judgement(self) -> str:
        """The limit and the verdict, '≤ 1.15  met'; empty without a limit."""
        if self.limit is None:
            return ""
        sign = ("<" if self.at_most else ">") if self.strict else ("≤" if self.at_most else "≥")
        return f"{sign} {self.limit:.2f}  {'met' if self.met else 'missed'}"

    def to_json(self) -> dict[str, Any]:
        """The measurement as recorded."""
        return {
            "what": f"{self.case}: {self.what}" if self.case else self.what,
            "value": self.value,
            "unit": self.unit,
            "limit": self.limit,
            "at_most": self.at_most,
            "met": self.met,
        }


class Table(list[Measurement]):
    """Measurements that are printed one by one, as lines of a table of ratios."""

    def __init__(self, width: int, at_most: bool = True) -> None:
        super().__init__()
        self._width, self._at_most = width, at_most
        print(f"{'what':<{width}}{'ratio':>8}  limit")

    def show(self, what: str, value: float, limit: float) -> None:
        """Add a ratio and print it with its limit."""
        self.append(Measurement(what, value, limit=limit, at_most=self._at_most))
        print(f"{what:<{self._width}}{value:>8.2f}  {self[-1].judgement}", flush=True)


def options_of(parser: ArgumentParser) -> Namespace:
    """The options of the command line with `--json`, which is refused at once if its file cannot be written."""
    parser.add_argument("--json", type=_place, metavar="FILE", help="record the measurements as JSON")
    return parser.parse_args()


def finish(measurements: Iterable[Measurement], options: Namespace) -> int:
    """Record the measurements if `--json` is given, and return the exit code: 1 if a limit was missed."""
    measurements = list(measurements)
    if options.json:
        # Imported late: it imports torch, and startup.py measures that in other processes.
        from gossamer.experiments.training import environment

        name = Path(sys.argv[0]).stem
        record = {
            "benchmark": name,
            "command": _command(name, options),
            "measurements": [m.to_json() for m in measurements],
            "environment": environment(),
        }
        write_text(options.json, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return int(any(m.met is False for m in measurements))


def _command(name: str, options: Namespace) -> str:
    """The command that repeats the measurement: every setting, defaults included, except the output file."""
    settings = {key: value for key, value in vars(options).items() if value and key != "json"}
    words = [word for key, value in settings.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    return shlex.join(["python", f"benchmarks/{name}.py", *words])


def _place(text: str) -> Path:
    try:
        check_writable(Path(text))
    except GossamerError as error:
        raise ArgumentTypeError(str(error)) from error
    return Path(text)
