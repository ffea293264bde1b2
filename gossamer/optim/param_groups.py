"""Parameter groups: checked, compared with those of a checkpoint, and turned into rules for buckets."""

import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from gossamer._common.checks import check_switch
from gossamer.errors import InputError
from gossamer.methods import Method
from gossamer.methods.contract import Scalar
from gossamer.optim.bucket import Bucket

COMMON = ("lr", "weight_decay")
"""What every parameter group holds, whatever the method."""


@dataclass(slots=True)
class Rule:
    """What a bucket's step needs besides its vectors."""

    method: Method
    lr: Scalar
    weight_decay: Scalar
    shrink: Scalar
    """What x is multiplied by before the step: 1, or 1 - lr * weight_decay where the decay is decoupled."""


class Rules:
    """The rules of all buckets, updated only where the user changed something.

    A coefficient in which the groups of a bucket differ becomes a vector. `hyperparameters` are the names under which
    parameter groups hold those of the method.
    """

    def __init__(self, buckets: Sequence[Bucket], method: type[Method], hyperparameters: Sequence[str]) -> None:
        self._buckets, self._method = buckets, method
        self._watched = ["weight_decay", "decoupled", *hyperparameters]
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
            added = [0.0 if group["decoupled"] else decay for group, decay in zip(groups, decays, strict=True)]
            shrinks = [1 - rate * (decay - l2) for rate, decay, l2 in zip(rates, decays, added, strict=True)]
            self._rules = [
                Rule(self._method(**_blend(bucket, options)), *map(bucket.coefficient, (rates, added, shrinks)))
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
    check_switch(title, "decoupled", group["decoupled"])
    for parameter in group["params"]:
        if not parameter.is_floating_point():
            raise InputError(f"{title} trains real parameters, but one is of type {parameter.dtype}.")


def group_facts(groups: Sequence[dict[str, Any]], options: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Everything in which the parameter groups of two nodes must agree; `options` are the method's in every group."""
    facts: dict[str, str] = {}
    for number, (group, own) in enumerate(zip(groups, options, strict=True)):
        where = f" of parameter group {number}" if len(groups) > 1 else ""
        values = {**{name: float(group[name]) for name in COMMON}, "decoupled": group["decoupled"], **own}
        facts |= {name + where: str(value) for name, value in values.items()}
        names = group.get("param_names") or range(len(group["params"]))
        for name, p in zip(names, group["params"], strict=True):
            kind = "" if p.requires_grad else ", frozen"
            facts[f"parameter {name}{where}"] = f"{list(p.shape)} {str(p.dtype).removeprefix('torch.')}{kind}"
    return facts


def refuse_foreign_groups(
    state_dict: dict[str, Any], keys: Collection[str], optimizer: str, ours: dict[str, Any]
) -> None:
    """Raise if a saved parameter group lacks one of the `keys` of `ours`, or has a value of another kind there."""
    for group in state_dict["param_groups"]:
        lacking = set(keys) - group.keys()
        if lacking:
            raise InputError(
                f"The checkpoint says nothing of {', '.join(sorted(lacking))}: it was saved by another optimizer "
                f"or version, not by {optimizer}."
            )
        for key in keys:
            alike = ours[key] is None or _kind(group[key]) == _kind(ours[key])
            if not alike or (_kind(group[key]) is float and not abs(float(group[key])) <= torch.finfo().max):
                raise InputError(f"The checkpoint has {group[key]!r} for {key}, where {optimizer} has {ours[key]!r}.")


def _kind(value: object) -> type:
    """Its type; numbers are alike, in tensors too."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    return float if number or (isinstance(value, Tensor) and value.numel() == 1) else type(value)


def state_by_parameter(state_dict: dict[str, Any], groups: Sequence[dict[str, Any]]) -> dict[Tensor, dict[str, Any]]:
    """The saved state of the parameters in `groups`: all that require a gradient must have one, and no others."""
    there, here = ([len(group["params"]) for group in these] for these in (state_dict["param_groups"], groups))
    if there != here:
        raise InputError(
            f"The checkpoint has parameter groups of {there} parameters, but this optimizer has groups of {here}; it "
            f"was written by another model, or before or after add_param_group."
        )
    numbers = [n for group in state_dict["param_groups"] for n in group["params"]]
    both = list(zip(numbers, [p for group in groups for p in group["params"]], strict=True))
    saved = {p: state_dict["state"][n] for n, p in both if n in state_dict["state"]}
    lost = [n for n, p in both if p.requires_grad and p not in saved]
    if lost:
        raise InputError(
            f"The checkpoint holds no state for the parameters {lost}; they were frozen when it was written, or it "
            f"was written by another optimizer: freeze and unfreeze before loading as it was before saving."
        )
    dropped = [n for n, p in both if not p.requires_grad and p in saved]
    if dropped:
        raise InputError(
            f"The checkpoint holds the state of the parameters {dropped}, which are frozen now, so that it would be "
            f"lost: freeze and unfreeze before loading as it was before saving."
        )
    return saved
