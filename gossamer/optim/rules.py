"""Parameter groups as rules for buckets: a coefficient in which the groups differ becomes a vector."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.errors import InputError
from gossamer.methods import Method
from gossamer.methods.arithmetic import Scalar
from gossamer.optim.bucket import Bucket

COMMON = ("lr", "weight_decay")
"""What every parameter group holds, whatever the method."""


@dataclass(slots=True)
class Rule:
    """What a bucket's step needs besides its vectors."""

    method: Method
    lr: Scalar
    weight_decay: Scalar


class Rules:
    """The rules of all buckets, made anew only where the user changed something.

    `hyperparameters` are the names under which parameter groups hold those of the method.
    """

    def __init__(self, buckets: Sequence[Bucket], method: type[Method], hyperparameters: Sequence[str]) -> None:
        self._buckets, self._method = buckets, method
        self._watched = ["weight_decay", *hyperparameters]
        self._key: list[tuple[Any, ...]] = []
        self._rules: list[Rule] = []
        self._settings = (0.0, 0)

    def of(
        self, groups: list[dict[str, Any]], options_of: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> tuple[list[Rule], tuple[float, int]]:
        """A rule for every bucket; and the first group's step size with a hash of all settings, for comparison.

        `options_of` gives the method's hyper-parameters out of a parameter group.
        """
        key = [(float(g["lr"]), *[g[name] for name in self._watched]) for g in groups]
        if key != self._key:
            options = [options_of(group) for group in groups]
            rates, decays = ([float(group[name]) for group in groups] for name in COMMON)
            self._rules = [
                Rule(self._method(**_blend(bucket, options)), bucket.coefficient(rates), bucket.coefficient(decays))
                for bucket in self._buckets
            ]
            self._settings = (rates[0], zlib.crc32(repr(key).encode()))
            self._key = key
        return self._rules, self._settings


def _blend(bucket: Bucket, options: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One value for every hyper-parameter of the method, out of those of the bucket's groups."""
    blended: dict[str, Any] = {}
    for name, first in options[bucket.groups[0]].items():
        values = [o[name] for o in options]
        mine = {values[g] for g in bucket.groups}
        if len(mine) > 1 and any(isinstance(v, bool | str) or v is None for v in mine):
            raise InputError(
                f"The parameter groups differ in {name} ({' and '.join(sorted(map(str, mine)))}), which all must "
                f"share; only numbers such as lr, weight_decay and momentum can be a group's own."
            )
        blended[name] = bucket.coefficient(values) if len(mine) > 1 else first
    return blended


def check_group(group: dict[str, Any], title: str) -> None:
    """Raise if the method called `title` cannot train a parameter group, whatever its hyper-parameters."""
    for name in COMMON:
        value = float(group[name])
        if not (value >= 0 and value != float("inf")):
            raise InputError(f"{title} needs a finite {name} of at least 0, but {name} is {value:g}.")
    for parameter in group["params"]:
        if not parameter.is_floating_point():
            raise InputError(f"{title} trains real parameters, but one is of type {parameter.dtype}.")
