"""The part of a grid that `--only` selects."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from gossamer._common.checks import normalized
from gossamer.errors import InputError, unknown
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.grid import Grid

Wanted = dict[str, list[str]]
"""For every key the accepted values, as they were written."""

KEYS = (*Experiment.keys(), "k", "alpha")
"""The fields of an experiment, and the two parameters of partitions by which papers order their tables."""


def wanted(texts: Iterable[str]) -> Wanted:
    """The conditions in texts such as `k=4,10`; a parameter after a comma belongs to the value before it.

    So does `every` after a method, or `weight_decay` after an inner optimizer, that takes it as a parameter.

    >>> wanted(["k=4,10", "method=dsgd,abm:beta=0.5,nesterov=true"])
    {'k': ['4', '10'], 'method': ['dsgd', 'abm:beta=0.5,nesterov=true']}
    """
    found: Wanted = {}
    for text in texts:
        key = ""
        for part in filter(None, map(str.strip, text.split(","))):
            name, equals, value = part.partition("=")
            if key and equals and ":" not in name and ":" in found[key][-1]:
                longer = f"{found[key][-1]},{part}"
                if name.strip() not in KEYS or _can_be_made(key, longer):
                    found[key][-1] = longer
                    continue
            if equals and ":" not in name:
                key, part = name.strip(), value.strip()
            if not key or not part:
                raise InputError(
                    f"--only needs key=value, such as --only seed=0 or k=4,10, not '{text}'; put other arguments "
                    f"before --only."
                )
            found.setdefault(key, []).append(part)
    return found


def _can_be_made(key: str, spec: str) -> bool:
    """Whether `spec` names a method or an inner optimizer with parameters that it takes."""
    from gossamer import methods
    from gossamer.engine import local_steps

    makers: dict[str, Callable[[str], object]] = {"method": methods.get, "inner": local_steps.by_name}
    if key not in makers:
        return False
    try:
        makers[key](spec)
    except InputError:
        return False
    return True


def part_of(grid: Grid, wanted: Wanted) -> Grid:
    """The experiments that have one of the wanted values for every key: a field of `Experiment`, k or alpha."""
    kept = grid.experiments
    for key, texts in wanted.items():
        known = {name for e in grid.experiments for name in _called(key, e)}
        if not known:
            raise InputError(f"No experiment of {_source(grid)} has {key}, so --only {key}=... selects nothing.")
        values = [_key(text) for text in texts]
        for value in values:
            if value not in known:
                raise unknown(f"experiment of {_source(grid)} with {key}", value, known)
        kept = [e for e in kept if not _called(key, e).isdisjoint(values)]
    if not kept:
        written = " and ".join(f"{key}={','.join(texts)}" for key, texts in wanted.items())
        raise InputError(f"No experiment of {_source(grid)} has {written}; give fewer conditions.")
    return replace(grid, experiments=kept)


def _source(grid: Grid) -> str:
    return grid.source or "the grid"


def _called(key: str, experiment: Experiment) -> set[str]:
    """The spellings that match the value of `key`: with and without its parameters, 0.10 and 0.1."""
    from gossamer.data import partition

    if key not in KEYS:
        raise unknown("key for --only", key, KEYS)
    if key in ("k", "alpha"):
        value = getattr(partition.get(experiment.partition, experiment.nodes), key, None)
        return set() if value is None else {_key(str(value))}
    text = experiment.model_name if key == "model" else str(getattr(experiment, key))
    return {_key(text), _key(text.partition(":")[0])}


def _key(text: str) -> str:
    try:
        return f"{float(text):g}"
    except ValueError:
        return normalized(text)
