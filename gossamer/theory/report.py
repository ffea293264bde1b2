"""What a numerical check found: one row per statement."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One statement, what was measured, and between which numbers it had to lie.

    >>> Row("mean of c is 0", measured=1e-16, least=0.0, most=1e-10).passed
    True
    """

    name: str
    measured: float
    least: float
    most: float

    @property
    def passed(self) -> bool:
        """Whether the measured number lies where it must; a NaN does not."""
        return self.least <= self.measured <= self.most


@dataclass(frozen=True)
class Report:
    """All rows of a check, and what cannot be run but can be said.

    >>> print(Report((Row("mean of c is 0", 1e-16, 0.0, 1e-10),), ()))
    statement       measured  allowed              verdict
    mean of c is 0  1e-16     between 0 and 1e-10  holds
    """

    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every row did."""
        return all(row.passed for row in self.rows)

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows that did not."""
        return tuple(row for row in self.rows if not row.passed)

    def __str__(self) -> str:
        table = [("statement", "measured", "allowed", "verdict")]
        for row in self.rows:
            allowed = f"between {row.least:.4g} and {row.most:.4g}"
            table.append((row.name, f"{row.measured:.4g}", allowed, "holds" if row.passed else "FAILS"))
        widths = [max(len(line[k]) for line in table) for k in range(4)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in table]
        return "\n".join([line.rstrip() for line in lines] + list(self.notes))
