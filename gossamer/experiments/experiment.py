"""One training, described by plain words and numbers, as in TOML files, on the command line and in stored runs."""

import dataclasses
import hashlib
import inspect
import json
import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from gossamer._common.checks import MOST_NODES, normalized
from gossamer._common.formatting import USUAL_METRIC, MetricFacts
from gossamer.errors import GossamerError, InputError, unknown


class MisfitError(GossamerError):
    """The method cannot use the graph: each is valid, but not with the other."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One training. Fields that name a thing take its parameters after a colon, as in "k-class:k=4".

    >>> experiment = Experiment(dataset="digits", method="momentum-tracking:beta=0.5", epochs=3)
    >>> experiment.label, len(experiment.id)
    ('Momentum Tracking (beta=0.5)', 16)
    """

    method: str = "momentum-tracking"
    """The update rule: dsgd, dsgdm, gradient-tracking, momentum-tracking:init=zero, ..."""
    dataset: str = "digits"
    """digits (comes with the package), fashion-mnist, cifar-10, svhn or mnist."""
    model: str = ""
    """lenet, vgg-11, resnet-34 or small-cnn; by default small-cnn for digits and lenet for everything else."""
    nodes: int = 8
    """The number of nodes."""
    partition: str = "k-class:k=4"
    """Who holds which samples: iid, k-class:k=4, dirichlet:alpha=0.1, shards:per_node=2."""
    topology: str = "ring"
    """Who talks to whom: ring, chain, star, hypercube, exponential, complete, random-regular:degree=4, ..."""
    weights: str = "metropolis"
    """Mixing weights: metropolis, uniform, lazy or fastest."""
    lr: float = 0.01
    """The step size."""
    schedule: str = "constant"
    """How it changes: constant, step:at_epochs=500/750,factor=0.1 or cosine."""
    warm_up: float = 0.0
    """Epochs over which the step size first grows from 0."""
    epochs: float = 20.0
    """Passes of an average node over its own data: ceil(mean samples per node / batch_size) rounds each."""
    rounds: int = 0
    """Rounds instead of epochs, if above 0."""
    batch_size: int = 100
    """Samples per node and round."""
    weight_decay: float = 0.001
    """L2 added to the gradient, or decoupled from it."""
    decoupled: bool = False
    """Weight decay as in AdamW: X <- (1 - lr * weight_decay) X before every step."""
    inner: str = ""
    """The torch optimizer of the steps between two exchanges: adamw, sgd:momentum=0.9, ...; by default none."""
    every: int = 1
    """Steps of it per exchange."""
    clip: float = 0.0
    """The largest norm of a node's gradient, if above 0."""
    nonfinite: str = "stop"
    """What a NaN or Inf in a node's loss or gradient does: stop ends the run, skip counts the round as gradient 0."""
    augment: str = "usual"
    """usual (the dataset's customary crop and flip), erasing (that and random erasing) or none."""
    churn: str = ""
    """Nodes that leave and return: 100 leaves 3 5; 250 joins 3, or random:up=12,down=4 in mean epochs; or none."""
    node_weight: str = "equal"
    """equal, or size: a node's loss counts in proportion to its samples."""
    loss: str = "cross-entropy"
    """What is minimized: cross-entropy, token-cross-entropy, mse or bce."""
    metric: str = ""
    """What is reported: accuracy, perplexity, mae, f1 or loss; by default the one that is usual for the loss."""
    evaluate: str = "common"
    """common: every node's model on the common test set; own: each on a fifth of its node's samples, kept for that."""
    evaluations: int = 0
    """How often the whole test set is evaluated after the start; 0: up to ten times, limited to a fifth of the work."""
    seed: int = 0
    """Draws the partition, the initial model, the batches and random graphs."""

    @staticmethod
    @cache
    def keys() -> dict[str, type]:
        """Every field and its type."""
        return {f.name: f.type for f in dataclasses.fields(Experiment)}  # type: ignore[misc]

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str = "") -> "Experiment":
        """An experiment from the values of a TOML file or a stored run; errors name `source`."""
        where, keys = f"{source}: " if source else "", cls.keys()
        for key in values:
            if key not in keys:
                raise InputError(f"{where}{unknown('key', key, keys)}")
        try:
            return cls(**values)
        except InputError as error:
            raise InputError(f"{where}{error}") from None

    def __post_init__(self) -> None:
        for key in self.keys():
            object.__setattr__(self, key, checked_value(key, getattr(self, key)))
        for key in ("dataset", "model", "loss"):
            object.__setattr__(self, key, normalized(getattr(self, key)))
        for key, least in (
            ("nodes", 1),
            ("rounds", 0),
            ("every", 1),
            ("batch_size", 1),
            ("evaluations", 0),
            ("seed", 0),
        ):
            if getattr(self, key) < least:
                raise InputError(f"{key} must be at least {least}, but it is {getattr(self, key)}.")
        huge = 2**62
        for key, most in (("nodes", MOST_NODES), ("rounds", huge), ("every", huge), ("batch_size", huge),
                          ("evaluations", huge), ("seed", huge - 1)):  # fmt: skip
            if getattr(self, key) > most:
                raise InputError(f"{key} must be at most {most:,}, but it is {getattr(self, key):,}.")
        for key in ("lr", "warm_up", "epochs", "weight_decay", "clip"):
            if not 0 <= getattr(self, key) < math.inf:
                raise InputError(f"{key} must be a finite number of at least 0, but it is {getattr(self, key)}.")
        if not self.rounds and not self.epochs:
            raise InputError("The experiment has no length; give epochs or rounds above 0.")
        for key, choices in _CHOICES.items():
            if getattr(self, key) not in choices:
                raise unknown(key, getattr(self, key), choices)

    def to_dict(self) -> dict[str, Any]:
        """All fields, as plain words and numbers."""
        return {key: getattr(self, key) for key in self.keys()}

    def progress(self, row: dict[str, Any]) -> float:
        """The fraction of the run that is made at a row of its figures."""
        return float(row["round"] / self.rounds if self.rounds else row["epoch"] / self.epochs)

    @property
    def settings(self) -> dict[str, Any]:
        """All fields, with the default model and metric where none is named."""
        return {**self.to_dict(), "model": self.model_name, "metric": self.metric_name}

    def check(self) -> None:
        """Refuse what cannot run, before any data is read: unknown names, a graph that the method cannot use."""
        from gossamer import methods, models, tasks, topology
        from gossamer.data import partition
        from gossamer.data.catalog import CATALOG
        from gossamer.data.loading import OWN
        from gossamer.engine import churn, local_steps, schedule

        if self.inner:
            local_steps.by_name(self.inner)
            if self.decoupled:
                raise InputError("The inner optimizer makes the steps, so decoupled weight decay is its to have.")
        if self.churn:
            churn.churn_of(self.churn).present(self.nodes, self.rounds or None)
        if self.dataset not in {**CATALOG, **OWN}:
            raise unknown("dataset", self.dataset, {**CATALOG, **OWN})
        if self.dataset not in CATALOG and not self.model:
            raise InputError(f'The dataset {self.dataset} is your own, so name a model for it, as in model = "lenet".')
        tasks.task_of(self.loss, self.metric or None)
        models.get(self.model_name)
        partition.get(self.partition, self.nodes, self.seed)
        schedule.get(self.schedule, self.lr, self.warm_up)
        graph = topology.get(self.topology, self.nodes, weights=self.weights, seed=self.seed)
        method = methods.get(self.method)
        try:
            method.check(graph)
        except GossamerError as error:
            raise MisfitError(str(error)) from None

    @property
    def model_name(self) -> str:
        """The model, the default one where none is named."""
        return self.model or usual_model(self.dataset)

    @property
    def metric_name(self) -> str:
        """The metric, the usual one of the loss where none is named."""
        return self.metric or USUAL_METRIC.get(self.loss, "loss")

    @property
    def metric_facts(self) -> MetricFacts:
        """The metric's name, and whether higher is better."""
        from gossamer import tasks

        return tasks.task_of(self.loss, self.metric or None).metric.facts

    @property
    def file_versions(self) -> dict[str, str]:
        """Sixteen hex digits under "method", "topology", "dataset", ... where these come from a user's file.

        They change with it.
        """
        from gossamer import methods, topology
        from gossamer._common import checks
        from gossamer.experiments.user_files import VERSIONS
        from gossamer.topology.families import is_file

        found = {}
        method = VERSIONS.get(methods.find(checks.split(self.method)[0]).__module__)
        if method is not None:
            found["method"] = method
        if VERSIONS:
            found |= {key: VERSIONS[module] for key, module in self._own_modules() if module in VERSIONS}
        if is_file(self.topology):
            # The graph of the file, without the experiment's weights: the last bits of fastest weights vary.
            with suppress(GossamerError):  # the file is not here
                found["topology"] = topology.get(self.topology, self.nodes).fingerprint[:16]
        return found

    def _own_modules(self) -> list[tuple[str, str]]:
        """The module that registered the dataset, the model, the loss and the metric, where a user's file did."""
        from gossamer import tasks
        from gossamer.data import loading
        from gossamer.models import image_classifiers

        made = {
            "dataset": loading.OWN.get(self.dataset),
            "model": image_classifiers.OWN.get(self.model_name),
            "loss": tasks.LOSSES[self.loss].function if self.loss in tasks.LOSSES else None,
            "metric": tasks.METRICS[self.metric_name].function if self.metric_name in tasks.METRICS else None,
        }
        return [(key, getattr(function, "__module__", "")) for key, function in made.items()]

    @cached_property
    def id(self) -> str:
        """Sixteen hex digits that only an equal experiment shares: the name of its run."""
        return self._digest(self.settings)

    @cached_property
    def cell(self) -> str:
        """The id without seed and step size: what is averaged over seeds, with the best step size, in a table."""
        return self._digest({k: v for k, v in self.settings.items() if k not in ("seed", "lr")})

    def _digest(self, values: dict[str, Any]) -> str:
        from gossamer import methods

        method = repr(methods.get(self.method))
        if " at 0x" in method:  # it holds an object whose only description is its address
            method = self.method
        # Experiments that do not use what later versions added keep the ids of their stored runs.
        values = {key: value for key, value in values.items() if ADDED.get(key) != value}
        values["method"] = method
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    @cached_property
    def label(self) -> str:
        """The method's title, with the hyper-parameters that differ from their defaults."""
        from gossamer import methods
        from gossamer._common import checks

        name, rest = checks.split(self.method)
        method = methods.find(name)
        given = checks.parameters("method", method.name, method, rest) if rest else {}
        usual = {k: p.default for k, p in inspect.signature(method).parameters.items()}
        changed = [f"{k}={given[k]}" for k in usual if k in given and given[k] != usual[k]]
        return f"{method.facts.title} ({', '.join(changed)})" if changed else method.facts.title


ADDED = {
    "loss": "cross-entropy",
    "metric": "accuracy",
    "evaluate": "common",
    "decoupled": False,
    "inner": "",
    "every": 1,
    "churn": "",
    "nonfinite": "stop",
}
"""The settings that stored runs of older versions lack, and what they were."""

AUGMENTATIONS = ("usual", "erasing", "none")

_CHOICES = {
    "augment": AUGMENTATIONS,
    "node_weight": ("equal", "size"),
    "evaluate": ("common", "own"),
    "nonfinite": ("stop", "skip"),
}


def usual_model(dataset: str) -> str:
    """The model of an experiment that names none."""
    return "small-cnn" if dataset == "digits" else "lenet"


def checked_value(key: str, value: Any) -> Any:
    """`value` as the type of the field `key`; an error names the key and what to write."""
    wanted = Experiment.keys()[key]
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise InputError(f"{key} has {len(str(value))} digits; give a number below 1e308.") from None
    if isinstance(value, str) and "\0" in value:
        raise InputError(f"{key} holds a null character, {value!r}; remove it.")
    if wanted is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, wanted) and isinstance(value, bool) == (wanted is bool):
        return value
    kind = {int: "a whole number", float: "a number", str: "a word in quotes", bool: "true or false"}[wanted]
    example = json.dumps(next(f.default for f in dataclasses.fields(Experiment) if f.name == key))
    raise InputError(f"{key} must be {kind}, not {value!r}; write it as in {key} = {example}.")
