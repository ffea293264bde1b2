"""Data that come site by site, each with its own test part."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gossamer.data.conversion import as_inputs, as_targets, briefly, form
from gossamer.data.datasets import Dataset, NodeData, Samples
from gossamer.data.partition import from_lists
from gossamer.errors import InputError


def sites(
    train: Sequence[tuple[Any, Any]],
    test: Sequence[tuple[Any, Any]] | float = 0.2,
    *,
    holdout: float = 0.1,
    seed: int = 0,
    **options: Any,
) -> NodeData:
    """Data that come site by site: `train[i]` and `test[i]` are the inputs and targets of node i.

    `test` may be the share of its samples that every site keeps to test on. There is no common test set, so
    `simulate` tests every node's model on its own part. The share `holdout` of the training samples is kept for
    validation. `options` are those of `Dataset.from_tensors`.

    >>> nodes = sites([(torch.rand(10, 3), torch.rand(10)), (torch.rand(20, 3), torch.rand(20))])
    >>> nodes.sizes, [len(own) for own in nodes.partition.test]
    ([7, 14], [2, 4])
    """
    own = [_site(pair, f"site {node}", "train") for node, pair in enumerate(train)]
    if not own:
        raise InputError("There are no sites; give one pair (inputs, targets) per site.")
    recipe = from_lists(_ranges(own), seed=seed)
    if isinstance(test, int | float):
        return _joined(own, options).split(recipe, holdout, float(test))
    tests = [_site(pair, f"site {node}", "test") for node, pair in enumerate(test)]
    if len(tests) != len(own):
        raise InputError(f"There are {len(own)} sites but {len(tests)} test parts; give one per site.")
    partition = _joined(own, options).split(recipe, holdout).partition
    parts = _ranges([*own, *tests])[len(own) :]
    return NodeData(_joined([*own, *tests], options), dataclasses.replace(partition, test=parts))


def _ranges(parts: Sequence[Samples]) -> list[Tensor]:
    """Where the samples of each part are when all are joined."""
    ends = itertools.accumulate((len(targets) for _, targets in parts), initial=0)
    return [torch.arange(start, end) for start, end in itertools.pairwise(ends)]


def _site(pair: Any, site: str, part: str) -> Samples:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InputError(f"The {part} data of {site} must be a pair (inputs, targets), not {briefly(pair)}.")
    inputs, targets = as_inputs(pair[0], f"{part} inputs of {site}"), as_targets(pair[1], f"{part} targets of {site}")
    if len(inputs) != len(targets):
        raise InputError(f"The {part} data of {site} has {len(inputs):,} inputs and {len(targets):,} targets.")
    return inputs, targets


def _joined(parts: Sequence[Samples], options: dict[str, Any]) -> Dataset:
    forms = list(dict.fromkeys(form(inputs) for inputs, _ in parts))
    if len(forms) > 1:
        raise InputError(
            f"Some sites have samples of {forms[0]}, others of {forms[1]}; give all of them one shape and dtype."
        )
    try:
        inputs, targets = (torch.cat(column) for column in zip(*parts, strict=True))
    except RuntimeError as error:
        raise InputError(f"The targets of the sites cannot be joined: {str(error).splitlines()[0]}.") from error
    return Dataset.from_tensors(inputs, targets, **options)
