"""What was measured in the course of a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gossamer._common.metrics import Row
from gossamer.errors import InputError


class History:
    """One row of figures for each evaluation, oldest first.

    >>> history = History([{"round": 0, "accuracy": 0.1}, {"round": 10, "accuracy": 0.6}])
    >>> history["accuracy"]
    [0.1, 0.6]
    """

    def __init__(self, rows: list[Row] | None = None) -> None:
        self.rows: list[Row] = rows or []

    def __repr__(self) -> str:
        rounds = f", rounds {self.rows[0]['round']} to {self.rows[-1]['round']}" if self.rows else ""
        return f"History({len(self.rows)} evaluations{rounds})"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> list[Any]:
        """One figure over all evaluations; None where it was not measured (the validation set: only at the end)."""
        known = dict.fromkeys(key for row in self.rows for key in row)
        if self.rows and name not in known:
            raise KeyError(f"no figure '{name}'; there are {', '.join(known)}")
        return [row.get(name) for row in self.rows]

    def put(self, row: Row) -> None:
        """Add a row, in the place of an earlier one of the same round; what it could not measure anew is kept.

        >>> history = History([{"round": 10, "loss": 0.5, "train_loss": 0.4}])
        >>> history.put({"round": 10, "loss": 0.5, "train_loss": None})
        >>> history.rows
        [{'round': 10, 'loss': 0.5, 'train_loss': 0.4}]
        """
        if self.rows and self.rows[-1]["round"] == row["round"]:
            old = self.rows.pop()
            row.update({name: value for name, value in old.items() if row.get(name) is None})
        self.rows.append(row)

    @property
    def last(self) -> Row:
        """The newest row."""
        if not self.rows:
            raise InputError("Nothing has been evaluated yet, so there is no last row.")
        return self.rows[-1]

    def to_jsonl(self, path: Path | str) -> None:
        """Write one JSON object per line; what is no finite number becomes null, because JSON has no such thing."""
        from gossamer._common.files import to_json, write_text

        write_text(Path(path), "".join(to_json(row) + "\n" for row in self.rows))

    def to_pandas(self) -> Any:
        """A pandas DataFrame with one row per evaluation (pip install 'gossamer[data]')."""
        try:
            import pandas
        except ImportError:
            raise InputError("A DataFrame needs pandas; run: pip install 'gossamer[data]'.") from None
        return pandas.DataFrame(self.rows)
