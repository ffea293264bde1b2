"""The checkpoints of a simulated run, and what identifies the run that they belong to.

A directory holds the checkpoints of one run. The newest two are kept: if the newest is damaged, the other one is used.
"""

import hashlib
import json
import logging
import re
import time
from array import array
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gossamer._common import checkpoint_file as files
from gossamer.engine.history import History
from gossamer.engine.node_models import NodeModels
from gossamer.engine.schedule import Lr, Schedule
from gossamer.engine.simulation import Simulation
from gossamer.errors import InputError

KEPT = 2
SECONDS_BETWEEN_CHECKPOINTS = 60.0

log = logging.getLogger("gossamer")


class CheckpointDirectory:
    """Where and how often a run is saved. `interval` is in rounds; None saves once a minute."""

    def __init__(self, directory: Path, interval: int | None, identity: dict[str, Any]) -> None:
        self.directory, self.interval, self.identity = directory, interval, identity
        self._saved_at = time.monotonic()
        self._begun = False
        """Whether the directory is in use, so that it is missed if it is removed."""

    def is_due(self, round: int) -> bool:
        """Whether to save after `round` rounds."""
        if self.interval is None:
            return time.monotonic() - self._saved_at >= SECONDS_BETWEEN_CHECKPOINTS
        return round % self.interval == 0

    def save(self, simulation: Simulation, history: History) -> None:
        """Write a checkpoint and delete all but the newest two. A state that is not finite is not saved."""
        state = simulation.state_dict()
        if not _is_finite(state):
            log.warning(
                "The state after %d rounds holds numbers that are not finite, so no checkpoint of it is written.",
                simulation.round,
            )
            return
        content = {"simulation": state, "history": json.dumps(history.rows)}
        files.write(self.directory, simulation.round, self.identity, content, make_directory=not self._begun)
        self._begun = True
        for round in files.rounds_in(self.directory)[:-KEPT]:
            files.path_of(self.directory, round).unlink(missing_ok=True)
        self._saved_at = time.monotonic()

    def load(self, simulation: Simulation, rounds: int) -> History:
        """Continue from the newest checkpoint that is not damaged; returns its history, an empty one without any.

        A checkpoint of another run, or of more than `rounds` rounds, is refused, and nothing is changed.
        """
        self._begun = self.directory.is_dir()
        saved = self._newest()
        if saved is None:
            return History()
        if saved["round"] > rounds:
            raise InputError(
                f"The checkpoint in {self.directory} was written after {saved['round']} rounds, but this run has "
                f"{rounds}, and rounds cannot be undone; ask for at least {saved['round']} rounds, or choose another "
                f"directory."
            )
        form = saved["settings"].get("form", "an earlier version")
        if form != self.identity["form"]:
            log.warning(
                "The gradients before round %d were computed by %s, those from here on by %s: the run continues, but "
                "not to the same bits as if it had never stopped.",
                saved["round"], form, self.identity["form"],
            )  # fmt: skip
        with files.taking_over(files.path_of(self.directory, saved["round"])):
            simulation.load_state_dict(saved["round"], saved["content"]["simulation"])
            return History([{**row, "round": int(row["round"])} for row in json.loads(saved["content"]["history"])])

    def _newest(self) -> dict[str, Any] | None:
        saved: dict[str, Any] | None = None
        damaged: dict[Path, files.Damaged] = {}
        for round in reversed(files.rounds_in(self.directory)):
            path = files.path_of(self.directory, round)
            if saved is not None:
                self._refuse_foreign(path, files.settings_of(path))
                continue
            try:
                saved = files.read(path)
            except files.Damaged as error:
                damaged[path] = error
            else:
                self._refuse_foreign(path, saved["settings"])
        files.remove_unfinished_checkpoints(self.directory)
        go_on = f"the run continues from round {saved['round']}" if saved else "the run starts again"
        for path, reason in damaged.items():
            aside = files.set_aside(path).name
            log.warning("The checkpoint %s is damaged (%s) and is kept as %s; %s.", path, reason, aside, go_on)
        return saved

    def _refuse_foreign(self, path: Path, theirs: dict[str, Any] | None) -> None:
        if theirs is None:
            return
        # Older versions recorded fewer settings: only those that both know are compared.
        known = {key: value for key, value in self.identity.items() if key in theirs and key != "form"}
        files.refuse_foreign(path, theirs, known)


def _is_finite(state: dict[str, Any]) -> bool:
    """Whether a run could go on from what `Simulation.state_dict` gave."""
    numbers = files.first_not_finite([state["x"], state["method"]])
    return numbers is None and files.first_not_finite(state["buffers"], infinity=True) is None


def identity_of(simulation: Simulation, lr: Lr, schedule: Schedule) -> dict[str, Any]:
    """What must be equal for a checkpoint to belong to this run, as strings and numbers.

    The simulation has not begun: its models are those that the run starts from.
    """
    settings, models, data = simulation.settings, simulation.models, simulation.data
    layout = hashlib.sha256(repr(models.layout.slots).encode()).hexdigest()[:16]
    # A schedule is stretched over the run; with a constant step size a longer run continues a shorter one.
    constant = isinstance(lr, int | float)
    return {
        "dataset": data.dataset.name,
        "partition": data.partition.recipe,
        "model": f"{type(models.modules[0]).__name__} {layout}",
        "method": repr(simulation.method),
        "graph": f"{simulation.topology.name} {simulation.topology.fingerprint[:16]}",
        "lr": "function" if callable(lr) else repr(lr),
        "rounds": "any" if constant else schedule.rounds,
        "step_sizes": "constant" if constant else _step_sizes(schedule),
        "batch_size": settings.batch_size,
        "seed": settings.seed,
        "weight_decay": settings.weight_decay,
        "decoupled": settings.decoupled,
        "inner": settings.inner if isinstance(settings.inner, str | None) else "function",
        "every": settings.every,
        "clip": settings.clip,
        "node_weight": settings.node_weight,
        "nonfinite": settings.nonfinite,
        "churn": "none" if settings.churn is None else repr(settings.churn),
        "loss": settings.task.loss.name,
        "metric": settings.task.metric.name,
        "evaluate": settings.evaluate,
        "data": data.dataset.fingerprint[:16],
        # Not "architecture": under that name older versions recorded models whose layers they had reordered.
        "layers": _layers(models.modules[0]),
        "start": _start(models),
        # Another form computes the same up to rounding: such a checkpoint is continued, with a warning.
        "form": simulation.gradients.form,
    }


def _layers(module: nn.Module) -> str:
    """A digest of the printed model: kinds of layers, strides, rates. Addresses in memory are left out."""
    printed = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(module))
    return f"layers {hashlib.sha256(printed.encode()).hexdigest()[:16]}"


def _start(models: NodeModels) -> str:
    """A digest of the weights that all nodes start from, of frozen parameters and of buffers."""
    module = models.modules[0]
    frozen = [(name, value) for name, value in module.named_parameters() if not value.requires_grad]
    digest = hashlib.sha256(_bytes(models.x[0]))
    for name, value in [*frozen, *module.named_buffers()]:
        digest.update(f" {name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(_bytes(value))
    return f"weights {digest.hexdigest()[:16]}"


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _step_sizes(schedule: Schedule) -> str:
    """The first and the last step size, and a digest of all: functions that return the same are the same."""
    values = array("d", map(schedule.step_size, range(schedule.rounds)))
    return f"{values[0]:g} to {values[-1]:g}, {hashlib.sha256(values.tobytes()).hexdigest()[:16]}"
