"""Datasets in memory: whole tensors, how they are fed to a model, and who holds which samples after a split."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gossamer.data.batches import Augmentation, Normalization, Pipeline, rounds_per_epoch
from gossamer.data.partition_contract import Partition, PartitionRecipe
from gossamer.errors import InputError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels for training and testing.

    `train_inputs` [n, ...] and `test_inputs` [m, ...] hold samples of one shape and dtype (images: uint8 [n, C, H, W]);
    `train_targets` [n] and `test_targets` [m] hold class numbers (int64) that index `classes`, the classes' names.
    `normalization` turns stored values into model inputs, and `augmentation` is the customary one for training
    (None: none); both are declarations, the tensors hold the samples as they were stored.

    >>> Dataset.from_tensors(torch.rand(6, 4), [0, 1, 2, 0, 1, 2])
    Dataset 'custom': 6 training and 0 test samples of shape 4 (torch.float32), 3 classes
    """

    name: str
    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    classes: tuple[str, ...]
    normalization: Normalization = field(default_factory=Normalization)
    augmentation: Augmentation | None = None

    def __post_init__(self) -> None:
        _check_part("training", self.train_inputs, self.train_targets, self.classes)
        _check_part("test", self.test_inputs, self.test_targets, self.classes)
        if len(self.train_targets) == 0:
            raise InputError(f"The dataset '{self.name}' has no training samples; give at least one.")
        if (
            self.train_inputs.shape[1:] != self.test_inputs.shape[1:]
            or self.train_inputs.dtype != self.test_inputs.dtype
        ):
            raise InputError(
                f"Training samples are {_form(self.train_inputs)} and test samples {_form(self.test_inputs)}; "
                "one model cannot take both, give them the same shape and dtype."
            )

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample, (C, H, W) for images."""
        return tuple(self.train_inputs.shape[1:])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over all samples, labels and how they are fed to a model: equal datasets have equal fingerprints."""
        digest = hashlib.sha256(f"{self.classes} {self.normalization} {self.augmentation}".encode())
        for part in (self.train_inputs, self.train_targets, self.test_inputs, self.test_targets):
            digest.update(f" {part.dtype} {list(part.shape)} ".encode())
            digest.update(part.cpu().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def split(self, recipe: PartitionRecipe, holdout: float = 0.1) -> "NodeData":
        """Deal the training samples out to nodes, keeping the share `holdout` of them for validation.

        >>> from gossamer.data import partition
        >>> data = Dataset.from_tensors(torch.rand(40, 4), torch.arange(40) % 4)
        >>> data.split(partition.k_class(nodes=2, k=2, seed=0)).sizes
        [18, 18]
        """
        if not isinstance(recipe, PartitionRecipe):
            raise InputError(
                f"A dataset is split by a recipe that knows its number of nodes, not by {_briefly(recipe)}; write "
                "partition.iid(nodes=8), partition.get('k-class:k=4', nodes=8) or, for lists of samples of your own, "
                "partition.from_lists(lists)."
            )
        return NodeData(self, recipe(self.train_targets, holdout=holdout))

    def __repr__(self) -> str:
        return (
            f"Dataset '{self.name}': {len(self.train_targets):,} training and {len(self.test_targets):,} test samples "
            f"of shape {_form(self.train_inputs)}, {self.num_classes} classes"
        )

    @classmethod
    def from_tensors(
        cls,
        inputs: Any,
        targets: Any,
        test: tuple[Any, Any] | None = None,
        *,
        classes: int | Sequence[str] | None = None,
        name: str = "custom",
        normalization: Normalization | None = None,
        augmentation: Augmentation | None = None,
    ) -> "Dataset":
        """A dataset from your own `inputs` [n, ...] and class numbers `targets` [n]: tensors, arrays or nested lists.

        Targets are the numbers 0, 1, 2, ... of classes, one integer per sample; other targets, as of a regression, are
        refused. Inputs are of any type a model takes: images, features, or integers such as the tokens of a text.

        `test` is a pair of the same kind; without it there are no test samples. `classes` is the number of classes or
        their names, by default the largest class number + 1. Unless a `normalization` is given, bytes (uint8) become
        [0, 1] and anything else is used as it is.

        >>> images = torch.zeros(20, 1, 8, 8, dtype=torch.uint8)
        >>> Dataset.from_tensors(images, torch.arange(20) % 2, classes=["cat", "dog"]).num_classes
        2
        """
        train_inputs, train_targets = _inputs(inputs, "inputs"), _targets(targets, "targets")
        if test is None:
            test_inputs = train_inputs.new_empty((0, *train_inputs.shape[1:]))
            test_targets = train_targets[:0]
        else:
            if not isinstance(test, tuple | list) or len(test) != 2:
                raise InputError("test must be a pair (inputs, targets), or None for no test samples.")
            test_inputs, test_targets = _inputs(test[0], "test inputs"), _targets(test[1], "test targets")
        if classes is None:
            classes = int(torch.cat([train_targets, test_targets]).max()) + 1 if len(train_targets) else 0
        names = tuple(map(str, range(classes) if isinstance(classes, int) else classes))
        parts = (train_inputs, train_targets, test_inputs, test_targets)
        return cls(name, *parts, names, normalization or Normalization(), augmentation)


@dataclass(frozen=True, eq=False)
class NodeData:
    """What each node sees: a dataset and who holds which of its training samples.

    Made by `dataset.split(recipe)`; prints as the partition's table.

    >>> from gossamer import data
    >>> nodes = data.load("digits").split(data.partition.iid(nodes=4))
    >>> nodes.nodes, nodes.sizes
    (4, [324, 324, 324, 324])
    """

    dataset: Dataset
    partition: Partition

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.partition)

    @property
    def sizes(self) -> list[int]:
        """The number of training samples of each node."""
        return list(self.partition.sizes)

    def rounds_per_epoch(self, batch_size: int) -> int:
        """The rounds in which an average node passes once over its own data: ceil(mean size / batch size)."""
        return rounds_per_epoch(self.sizes, batch_size)

    @cached_property
    def pipeline(self) -> Pipeline:
        """How stored samples become batches."""
        return Pipeline(self.dataset.normalization, self.dataset.augmentation)

    @cached_property
    def validation(self) -> tuple[Tensor, Tensor]:
        """The common validation set: inputs and targets."""
        held = self.partition.validation
        return self.dataset.train_inputs[held], self.dataset.train_targets[held]

    @property
    def test(self) -> tuple[Tensor, Tensor]:
        """The common test set: inputs and targets."""
        return self.dataset.test_inputs, self.dataset.test_targets

    def test_part(self, samples: int, seed: int) -> tuple[Tensor, Tensor]:
        """A random part of the test set, the same for the same seed; a larger part holds the smaller ones.

        >>> from gossamer import data
        >>> nodes = data.load("digits").split(data.partition.iid(nodes=4))
        >>> len(nodes.test_part(100, seed=0)[1])
        100
        """
        inputs, targets = self.test
        if samples >= len(targets):
            return inputs, targets
        chosen = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))[:samples]
        return inputs[chosen], targets[chosen]

    def loss_weights(self, node_weight: str) -> Tensor:
        """The factor on each node's loss: 1 for "equal", N n_i / sum(n) for "size"; their mean is 1."""
        sizes = torch.tensor(self.sizes, dtype=torch.float64)
        if node_weight == "equal":
            return torch.ones_like(sizes)
        if node_weight == "size":
            return sizes / sizes.mean()
        raise InputError(f"node_weight is 'equal' or 'size', not {node_weight!r}.")

    def __str__(self) -> str:
        return str(self.partition)


def _briefly(value: object) -> str:
    """Text and classes as they are, anything else by its type: it may be large."""
    return repr(value) if isinstance(value, str | type) else f"an object of type {type(value).__name__}"


def _form(inputs: Tensor) -> str:
    return f"{'x'.join(map(str, inputs.shape[1:])) or 'one number'} ({inputs.dtype})"


def _tensor(values: Any, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach()
    try:
        return torch.tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"The {what} cannot be made a tensor ({error}); give a tensor or an array.") from error


def _inputs(values: Any, what: str) -> Tensor:
    inputs = _tensor(values, what)
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        raise InputError(f"The {what} contain NaN or infinite values, which no training recovers from; remove them.")
    return inputs


def _targets(values: Any, what: str) -> Tensor:
    targets = _tensor(values, what)
    if targets.numel() == 0:
        return targets.long().reshape(0)
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool or targets.dim() != 1:
        raise InputError(
            f"The {what} must be class numbers 0, 1, 2, ..., one integer per sample [n], because partitions and "
            f"training are by class; these are {targets.dtype} {list(targets.shape)}: number the classes first."
        )
    return targets.long()


def _check_part(part: str, inputs: Tensor, targets: Tensor, classes: tuple[str, ...]) -> None:
    if targets.dtype != torch.int64 or targets.dim() != 1:
        raise InputError(f"The {part} targets must be int64 [n]; got {targets.dtype} {list(targets.shape)}.")
    if inputs.dim() == 0:
        raise InputError(f"The {part} inputs are a single number; give one row per sample, [n, ...].")
    if len(inputs) != len(targets):
        raise InputError(f"There are {len(inputs):,} {part} inputs and {len(targets):,} {part} targets; give one each.")
    if len(targets) and not (int(targets.min()) >= 0 and int(targets.max()) < len(classes)):
        raise InputError(
            f"The {part} targets run from {int(targets.min())} to {int(targets.max())}, but {len(classes)} classes "
            f"are numbered 0 to {len(classes) - 1}; renumber the targets or state more classes."
        )
