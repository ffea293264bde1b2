"""Experiments from TOML: the keys of `Experiment`, where a list of values is an axis of a grid.

    name = "tables"
    dataset = "fashion-mnist"
    method = ["dsgdm", "momentum-tracking", "relaysum"]
    lr = [0.005, 0.001, 0.0005]
    seed = [0, 1, 2]

    [[override]]
    when = {method = "relaysum"}
    set = {topology = "chain"}

Overrides come after the expansion, in their order; equal experiments are kept once.
"""

import itertools
import json
import math
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer._common.checks import normalized
from gossamer._common.files import read_text
from gossamer.errors import GossamerError, InputError, unknown
from gossamer.experiments.experiment import Experiment, MisfitError, checked_value, usual_model

Values = dict[str, Any]

_TEXTS = ("name", "title", "description")
_TABLES = ("override", "slurm")

MOST_POINTS = 1_000_000


@dataclass(frozen=True)
class Grid:
    """Experiments that belong together."""

    experiments: list[Experiment]
    """Every one once, in the order of the grid: the last key of the file changes fastest."""
    name: str = ""
    title: str = ""
    description: str = ""
    source: str = ""
    """The file it was read from, named in errors."""
    slurm: Values = field(default_factory=dict)
    """What is requested from the cluster: the table [slurm] of the file."""

    @classmethod
    def from_dict(cls, values: Values, source: str = "") -> "Grid":
        """The grid that the values of a TOML file describe; refuses experiments that cannot run.

        >>> grid = Grid.from_dict({"method": ["dsgd", "momentum-tracking"], "lr": [0.1, 0.01], "nodes": 4})
        >>> [(e.method, e.lr) for e in grid.experiments]
        [('dsgd', 0.1), ('dsgd', 0.01), ('momentum-tracking', 0.1), ('momentum-tracking', 0.01)]
        """
        return _grid(values, source)


def read_grid(path: Path | str, **flags: Any) -> Grid:
    """The grid of a TOML file. A flag that is not None replaces the file's value."""
    return _grid(_read(Path(path)), str(path), flags)


def read_experiment(path: Path | str, **flags: Any) -> Experiment:
    """The one experiment of a TOML file. A flag that is not None replaces the file's value."""
    grid = _grid(_read(Path(path)), str(path), flags)
    if len(grid.experiments) > 1:
        raise InputError(
            f"{path} describes {len(grid.experiments)} experiments: that is a sweep; use gossamer sweep {path}."
        )
    return grid.experiments[0]


def _read(path: Path) -> Values:
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(_syntax(path, str(error))) from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} has a number of thousands of digits, or brackets nested too deeply.") from None


def _syntax(path: Path, message: str) -> str:
    """tomllib says "Invalid value (at line 3, column 5)"."""
    what, _, where = message.rstrip(")").partition(" (at ")
    place = f", {where}" if where.startswith("line") else " at its end"
    return f"{path}{place}: {what}; write key = value, with words in quotes and lists in brackets."


def _grid(values: Values, source: str, flags: Values | None = None) -> Grid:
    where = f"{source}: " if source else ""
    keys = Experiment.keys()
    for key in values:
        if key not in keys and key not in _TEXTS and key not in _TABLES:
            raise InputError(f"{where}{unknown('key', key, [*keys, *_TEXTS, *_TABLES])}")
    for key in _TEXTS:
        if not isinstance(values.get(key, ""), str):
            raise InputError(f'{where}{key} must be text in quotes, not {values[key]!r}; write it as in {key} = "…".')
        if "\0" in values.get(key, ""):
            raise InputError(f"{where}{key} holds a null character, {values[key]!r}; remove it.")
    points = points_of(values, source, flags)
    varying = [k for k in keys if k not in ("lr", "seed") and len({repr(p.get(k)) for p in points}) > 1]
    found: dict[str, Experiment] = {}
    checked = set()
    for point in points:
        experiment = Experiment.from_dict(point, source)
        # The step size does not matter to `check`.
        kind = json.dumps({**experiment.to_dict(), "lr": 1.0})
        if kind not in checked:
            try:
                experiment.check()
            except GossamerError as error:
                raise InputError(_impossible(where, {k: point[k] for k in varying if k in point}, error)) from None
            checked.add(kind)
        found.setdefault(experiment.id, experiment)
    return Grid(
        list(found.values()),
        **{key: values.get(key, "") for key in _TEXTS},
        source=source,
        slurm=_table(values.get("slurm", {}), f"{where}[slurm]"),
    )


def points_of(values: Values, source: str = "", flags: Values | None = None) -> list[Values]:
    """The combinations of the axes, with the overrides applied: what the experiments of a grid are made from.

    Flags win over the file and over its overrides.

    >>> len(points_of({"method": ["dsgd", "dsgdm"], "lr": [0.1, 0.01], "nodes": 4}))
    4
    """
    where, keys = f"{source}: " if source else "", Experiment.keys()
    given = {k: v for k, v in (flags or {}).items() if v is not None}
    axes = _axes({**{k: v for k, v in values.items() if k in keys}, **given}, source)
    _refuse_huge(math.prod(map(len, axes.values())), where)
    points = _expand(axes)
    for number, override in enumerate(_overrides(values.get("override", []), source), start=1):
        if not given and not any(_matches(p, override.when) for p in points):
            raise InputError(
                f"{where}override {number} applies to no experiment: none has {_written(override.when)}; "
                "correct its when, or remove it."
            )
        grown = math.prod(len(values) for key, values in override.set.items() if key not in given)
        matching = sum(_matches(p, override.when) for p in points) if grown > 1 else 0
        _refuse_huge(len(points) + matching * (grown - 1), where)
        points = [new for point in points for new in override.apply(point, given)]
    return points


def _refuse_huge(size: int, where: str) -> None:
    if size > MOST_POINTS:
        raise InputError(
            f"{where}this grid has {size:,} points, and at most {MOST_POINTS:,} can be made at once; give some keys "
            f"fewer values, or write several files."
        )


def _impossible(where: str, combination: Values, error: GossamerError) -> str:
    if not combination:
        return f"{where}{error}"
    # Only a file can hold overrides.
    remedy = " An [[override]] can change this combination." if where and isinstance(error, MisfitError) else ""
    return f"{where}with {_written(combination)}: {error}{remedy}"


def _axes(values: Values, source: str) -> dict[str, list[Any]]:
    """Every key with the list of its values."""
    where = f"{source}: " if source else ""
    for key, value in values.items():
        if value == []:
            raise InputError(f"{where}{key} is an empty list; give it at least one value, or leave it out.")
    return {key: value if isinstance(value, list) else [value] for key, value in values.items()}


def _expand(axes: dict[str, list[Any]]) -> list[Values]:
    return [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]


@dataclass(frozen=True)
class _Override:
    when: Values
    set: dict[str, list[Any]]

    def apply(self, point: Values, given: Collection[str]) -> Iterable[Values]:
        """The experiment itself, or what replaces it: several, if a list is set. What is `given` stays."""
        changes = _expand({key: values for key, values in self.set.items() if key not in given})
        return [{**point, **change} for change in changes] if _matches(point, self.when) else [point]


def _overrides(tables: Any, source: str) -> list[_Override]:
    from gossamer import methods

    where = f"{source}: " if source else ""
    remedy = 'as in [[override]] when = {method = "relaysum"} set = {topology = "chain"}'
    if not isinstance(tables, list):
        raise InputError(f"{where}override must be a list of tables; write {remedy}.")
    found = []
    for number, table in enumerate(tables, start=1):
        place = f"{where}override {number}"
        table = _table(table, place)
        for key in table:
            if key not in ("when", "set"):
                raise InputError(f"{place}: {unknown('key', key, ('when', 'set'))}")
        if not table.get("when") or not table.get("set"):
            raise InputError(f"{place} needs a when and a set, {remedy}.")
        when, change = _table(table["when"], f"{place}: when"), _table(table["set"], f"{place}: set")
        try:
            found.append(_Override(_checked(_axes(when, "")), _checked(_axes(change, ""))))
            for name in found[-1].when.get("method", []):
                methods.find(name.partition(":")[0])
        except GossamerError as error:
            raise InputError(f"{place}: {error}") from None
    return found


def _table(value: Any, place: str) -> Values:
    if not isinstance(value, dict):
        raise InputError(f"{place} must be a table of key = value, not {value!r}.")
    return value


def _checked(axes: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The same, each value of its field's type: what an override holds is checked where it stands."""
    keys = Experiment.keys()
    for key in axes:
        if key not in keys:
            raise unknown("key", key, keys)
    return {key: [checked_value(key, value) for value in values] for key, values in axes.items()}


def _matches(point: Values, conditions: Values) -> bool:
    """Whether every field has one of the wanted values; a name alone stands for that thing with any parameters."""
    values = {**{key: getattr(Experiment, key) for key in (*conditions, "dataset")}, **point}
    if not values.get("model"):
        values["model"] = usual_model(values["dataset"])
    return all(any(_same(values[key], w) for w in wanted) for key, wanted in conditions.items())


def _same(value: Any, wanted: Any) -> bool:
    if not isinstance(value, str):
        return bool(value == wanted)
    return normalized(wanted) in (normalized(value), normalized(value.partition(":")[0]))


def _written(values: Values) -> str:
    """Key and value as in the file."""
    alone = {k: v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in values.items()}
    return ", ".join(f"{k} = {json.dumps(v)}" for k, v in alone.items())
