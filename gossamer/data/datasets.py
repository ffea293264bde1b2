"""Datasets in memory: whole tensors, how they are fed to a model, and who holds which samples after a split."""

import dataclasses
import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gossamer._common.formatting import html_table
from gossamer.data.batches import Augmentation, Normalization, Pipeline, rounds_per_epoch
from gossamer.data.conversion import as_groups, as_inputs, as_targets, briefly, form, stacked
from gossamer.data.partition_contract import Partition, PartitionRecipe
from gossamer.errors import InputError, unknown

log = logging.getLogger("gossamer")

Samples = tuple[Tensor, Tensor]
"""Inputs and targets."""

EVALUATIONS = ("common", "own")
"""Every node's model on the common test set, or each on its node's own part."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and targets for training and testing.

    `train_inputs` [n, ...] and `test_inputs` [m, ...] hold samples of one shape and dtype (images: uint8 [n, C, H, W]);
    `train_targets` and `test_targets` hold class numbers (int64 [n], or [n, ...] for tokens) that index `classes`, the
    classes' names, or floating-point numbers of any shape [n, ...], with no classes.
    `groups` [n] holds a number 0, 1, 2, ... for every training sample, by which partitions by class divide instead of
    the targets: a hospital, a writer, a region.
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
    groups: Tensor | None = None

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
                f"Training samples are {form(self.train_inputs)} and test samples {form(self.test_inputs)}; "
                "one model cannot take both, give them the same shape and dtype."
            )
        if len(self.test_targets) and (
            self.train_targets.shape[1:] != self.test_targets.shape[1:]
            or self.train_targets.dtype != self.test_targets.dtype
        ):
            raise InputError(
                f"Training targets are {form(self.train_targets)} and test targets {form(self.test_targets)}; "
                "one loss cannot take both, give them the same shape and dtype."
            )
        if self.groups is not None and self.groups.shape != self.train_targets.shape[:1]:
            raise InputError(
                f"There are {len(self.train_targets):,} training samples, but groups is {list(self.groups.shape)}; "
                f"give one number per sample."
            )

    @property
    def num_classes(self) -> int:
        """How many classes there are; 0 where targets are not class numbers."""
        return len(self.classes)

    @property
    def has_classes(self) -> bool:
        """Whether the targets are class numbers, one per sample."""
        return self.train_targets.dim() == 1 and not self.train_targets.is_floating_point()

    @property
    def num_outputs(self) -> int:
        """How many numbers a model gives: one per class, or as many as a target has."""
        return self.num_classes or max(1, self.train_targets.shape[1:].numel())

    @property
    def group_names(self) -> list[str]:
        """What the columns of a partition's `label_counts` stand for."""
        if self.groups is not None:
            return [str(k) for k in range(int(self.groups.max()) + 1)]
        return list(self.classes) if self.has_classes else ["samples"]

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
        if self.groups is not None:
            digest.update(f" groups {self.groups.tolist()}".encode())
        return digest.hexdigest()

    def split(self, recipe: PartitionRecipe, holdout: float = 0.1, own_test: float = 0.0) -> "NodeData":
        """Deal the training samples out to nodes, keeping the share `holdout` of them for validation.

        Every node keeps the share `own_test` of its samples to test its own model on, for
        `simulate(evaluate="own")`.

        >>> from gossamer.data import partition
        >>> data = Dataset.from_tensors(torch.rand(40, 4), torch.arange(40) % 4)
        >>> data.split(partition.k_class(nodes=2, k=2, seed=0)).sizes
        [18, 18]
        """
        if not isinstance(recipe, PartitionRecipe):
            raise InputError(
                f"A dataset is split by a recipe that knows its number of nodes, not by {briefly(recipe)}; write "
                "partition.iid(nodes=8), partition.get('k-class:k=4', nodes=8) or, for lists of samples of your own, "
                "partition.from_lists(lists)."
            )
        labels = self.train_targets if self.groups is None else self.groups
        if self.groups is None and not self.has_classes:
            if recipe.by_class:
                raise InputError(
                    f"The targets of '{self.name}' are not one class number per sample, by which {recipe!r} divides; "
                    "give Dataset.from_tensors(..., groups=...) a number per sample to divide by, or use "
                    "partition.iid(nodes=8) or partition.from_lists(lists)."
                )
            labels = torch.zeros(len(self.train_targets), dtype=torch.int64)
        return NodeData(self, recipe(labels, holdout=holdout, own_test=own_test))

    def __repr__(self) -> str:
        return (
            f"Dataset '{self.name}': {len(self.train_targets):,} training and {len(self.test_targets):,} test samples "
            f"of shape {form(self.train_inputs)}, {self._targets_in_words}"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("training samples", f"{len(self.train_targets):,}"),
            ("test samples", f"{len(self.test_targets):,}"),
            ("a sample", form(self.train_inputs)),
            ("targets", self._targets_in_words),
        ]
        return html_table([], rows, f"Dataset '{self.name}'")

    @property
    def _targets_in_words(self) -> str:
        if self.has_classes:
            return f"{self.num_classes} classes"
        kinds = f", {self.num_classes} classes" if self.classes else ""
        return f"targets of shape {form(self.train_targets)}{kinds}"

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
        groups: Any = None,
    ) -> "Dataset":
        """A dataset from your own `inputs` [n, ...] and `targets` [n, ...].

        Both are tensors, NumPy arrays, pandas objects or nested lists. Inputs are of any type a model takes: images,
        features, or integers such as the tokens of a text. Integer targets are the numbers 0, 1, 2, ... of classes, one
        per sample or, for tokens, several; any other targets are numbers as of a regression, or 0 and 1 for labels.

        `test` is a pair of the same kind; without it there are no test samples. `classes` is the number of classes or
        their names, by default the largest class number + 1. Unless a `normalization` is given, bytes (uint8) become
        [0, 1] and anything else is used as it is. `groups` holds a number 0, 1, 2, ... per training sample by which
        partitions by class divide, where that is not the target.

        >>> images = torch.zeros(20, 1, 8, 8, dtype=torch.uint8)
        >>> Dataset.from_tensors(images, torch.arange(20) % 2, classes=["cat", "dog"]).num_classes
        2
        >>> Dataset.from_tensors([[1.0], [2.0]], [0.5, 1.0])
        Dataset 'custom': 2 training and 0 test samples of shape 1 (torch.float32), targets of shape one number ...
        """
        train_inputs, train_targets = as_inputs(inputs, "inputs"), as_targets(targets, "targets")
        if test is None:
            test_inputs = train_inputs.new_empty((0, *train_inputs.shape[1:]))
            test_targets = train_targets[:0]
        else:
            if not isinstance(test, tuple | list) or len(test) != 2:
                raise InputError("test must be a pair (inputs, targets), or None for no test samples.")
            test_inputs, test_targets = as_inputs(test[0], "test inputs"), as_targets(test[1], "test targets")
            if train_targets.is_floating_point():
                test_targets = test_targets.to(train_targets.dtype)
        if classes is None:
            classes = 0
            if train_targets.numel() and not train_targets.is_floating_point():
                classes = max(int(part.max()) for part in (train_targets, test_targets) if part.numel()) + 1
        names = tuple(map(str, range(classes) if isinstance(classes, int) else classes))
        parts = (train_inputs, train_targets, test_inputs, test_targets)
        grouped = None if groups is None else as_groups(groups)
        return cls(name, *parts, names, normalization or Normalization(), augmentation, grouped)

    @classmethod
    def from_items(
        cls, items: Iterable[Any], test: Iterable[Any] | None = None, *, columns: Sequence[str] = (), **options: Any
    ) -> "Dataset":
        """A dataset from anything that gives samples one by one and fits in memory.

        `items` is a torch.utils.data.Dataset, a Hugging Face dataset or a list: pairs (input, target), or mappings of
        which `columns` names two entries, input and target. Samples are stacked, so they have one shape. `options` are
        those of `from_tensors`.

        >>> pairs = torch.utils.data.TensorDataset(torch.rand(6, 4), torch.arange(6) % 3)
        >>> Dataset.from_items(pairs)
        Dataset 'custom': 6 training and 0 test samples of shape 4 (torch.float32), 3 classes
        >>> Dataset.from_items([{"text": [1, 2], "label": 0}, {"text": [3, 4], "label": 1}], columns=("text", "label"))
        Dataset 'custom': 2 training and 0 test samples of shape 2 (torch.int64), 2 classes
        """
        train = stacked(items, columns, "items")
        return cls.from_tensors(*train, None if test is None else stacked(test, columns, "test items"), **options)


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
    dtype: torch.dtype | None = None
    """The type of a model that pixels are converted to, where it is not float32."""

    def _repr_html_(self) -> str:
        return self.partition._repr_html_()

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
        return Pipeline(self.dataset.normalization, self.dataset.augmentation, self.dtype)

    def fitted_to(self, dtype: torch.dtype) -> "NodeData":
        """The same data with floating-point inputs and targets in the type of a model, and a line in the log if new."""
        dataset = self.dataset
        parts = ("train_inputs", "test_inputs", "train_targets", "test_targets")
        given = {name: getattr(dataset, name) for name in parts}
        changes = {k: v.to(dtype) for k, v in given.items() if v.is_floating_point() and v.dtype != dtype}
        if changes:
            what = " and ".join(name.removeprefix("train_") for name in parts[::2] if name in changes)
            before = given[next(iter(changes))].dtype
            log.warning("The %s are %s and the model is %s: they are converted to it.", what, before, dtype)
        pixels = dataset.train_inputs.dtype == torch.uint8 and dtype != torch.float32
        if not changes and not pixels:
            return self
        return NodeData(dataclasses.replace(dataset, **changes), self.partition, dtype if pixels else None)

    def warn_of_small_nodes(self, batch_size: int) -> None:
        """A line in the log if nodes hold fewer samples than a batch."""
        small = [node for node, size in enumerate(self.sizes) if size < batch_size]
        if not small:
            return
        which = f"node {small[0]} ({self.sizes[small[0]]})"
        if len(small) > 1:
            which = f"{len(small)} of {self.nodes} nodes (the smallest has {min(self.sizes)})"
        log.warning(
            "Fewer samples than a batch of %d: %s; such a node uses all that it has in every round, so it repeats its "
            "samples more often than the others; a smaller batch size avoids it.",
            batch_size, which,
        )  # fmt: skip

    @cached_property
    def own_tests(self) -> list[Samples]:
        """The test samples of every node's own; empty if there are none."""
        inputs, targets = self.dataset.train_inputs, self.dataset.train_targets
        return [(inputs[own], targets[own]) for own in self.partition.test]

    @cached_property
    def all_own_tests(self) -> Samples:
        """The test samples of all nodes together."""
        own = torch.cat(self.partition.test)
        return self.dataset.train_inputs[own], self.dataset.train_targets[own]

    def own_tests_of(self, nodes: Sequence[int]) -> Samples:
        """Those of some nodes together."""
        if len(nodes) == self.nodes:
            return self.all_own_tests
        own = torch.cat([self.partition.test[node] for node in nodes])
        return self.dataset.train_inputs[own], self.dataset.train_targets[own]

    def evaluation(self, evaluate: str | None) -> str:
        """What models are tested on: "common" or "own", by default the common test set if there is one."""
        common = len(self.dataset.test_targets) > 0
        if evaluate is None:
            evaluate = "own" if self.partition.test and not common else "common"
        if evaluate not in EVALUATIONS:
            raise unknown("way to evaluate", str(evaluate), EVALUATIONS)
        if evaluate == "common" and not common:
            raise InputError(
                f"The dataset '{self.dataset.name}' has no test samples to evaluate models on; give "
                f"Dataset.from_tensors a test=, or let every node keep some of its own, as in "
                f"dataset.split(recipe, own_test=0.2), and choose evaluate='own'."
            )
        if evaluate == "own":
            sizes = [len(own) for own in self.partition.test] or [0] * self.nodes
            if 0 in sizes:
                other = ", or choose evaluate='common'" if common else ""
                raise InputError(
                    f"Node {sizes.index(0)} has no test data of its own to be evaluated on; split with own_test=0.2 or "
                    f"give every site a test part (gossamer.data.sites){other}."
                )
        return evaluate

    @cached_property
    def validation(self) -> Samples:
        """The common validation set: inputs and targets."""
        held = self.partition.validation
        return self.dataset.train_inputs[held], self.dataset.train_targets[held]

    @property
    def test(self) -> Samples:
        """The common test set: inputs and targets."""
        return self.dataset.test_inputs, self.dataset.test_targets

    def test_part(self, samples: int, seed: int) -> Samples:
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


def _check_part(part: str, inputs: Tensor, targets: Tensor, classes: tuple[str, ...]) -> None:
    if targets.dtype != torch.int64 and not targets.is_floating_point():
        raise InputError(
            f"The {part} targets must be class numbers (int64) or floating-point numbers; these are {targets.dtype}."
        )
    if inputs.dim() == 0:
        raise InputError(f"The {part} inputs are a single number; give one row per sample, [n, ...].")
    if len(inputs) != len(targets):
        raise InputError(f"There are {len(inputs):,} {part} inputs and {len(targets):,} {part} targets; give one each.")
    if targets.is_floating_point():
        return
    # A token may be left out of the loss.
    counted = targets if targets.dim() == 1 else targets[targets != -100]
    if counted.numel() and not (int(counted.min()) >= 0 and int(counted.max()) < len(classes)):
        raise InputError(
            f"The {part} targets run from {int(counted.min())} to {int(counted.max())}, but {len(classes)} classes "
            f"are numbered 0 to {len(classes) - 1}; renumber the targets, state more classes or, if they are not "
            f"classes but numbers as in a regression, make them floating-point with .float()."
        )
