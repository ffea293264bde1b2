"""Hugging Face: a `Trainer` whose processes are nodes, and what Accelerate needs for the same."""

import copy
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from gossamer._common.files import write_text
from gossamer.errors import InputError
from gossamer.optim import DecentralizedOptimizer

try:
    from accelerate.state import AcceleratorState
    from transformers import Trainer
    from transformers.trainer_utils import rotate_checkpoints
except ImportError:
    raise InputError(
        "GossipTrainer needs Transformers and Accelerate; run: pip install 'gossamer[transformers]'."
    ) from None

LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""By these variables, which torchrun sets, Accelerate knows that there are other processes."""
COMPLETE = "gossamer-complete"
"""The file that is written last into a checkpoint."""


@contextmanager
def one_process() -> Iterator[None]:
    """An `Accelerator` that is made in this block sees this process alone, so that `prepare` does not average.

    Models are not wrapped in DistributedDataParallel, and loaders give all of this node's own data. Call
    `torch.distributed.init_process_group` before it, and save every node's state in a directory of its own.
    """
    AcceleratorState._reset_state(reset_partial_state=True)
    hidden = {name: os.environ.pop(name) for name in LAUNCHER if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


@contextmanager
def _silenced(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


class GossipTrainer(Trainer):
    """A Trainer in which every process is a node: give it a Gossamer optimizer, `optimizers=(optimizer, None)`.

    `TrainingArguments` brings up the process group, so make them before the optimizer. The model is not wrapped, the
    training data are this node's own, and all nodes make as many steps as the one with the most data. Every node saves
    and logs in its own directory, `<output_dir>/node-<name>`, and logs its `stats()` beside the loss.

    `train(resume_from_checkpoint=True)` continues all nodes to the same bits from the newest checkpoint that all of
    them have, or from the beginning if there is none.
    """

    def __init__(self, model: Any = None, args: Any = None, **options: Any) -> None:
        optimizer = options.get("optimizers", (None, None))[0]
        if not isinstance(optimizer, DecentralizedOptimizer):
            raise InputError(
                "GossipTrainer needs an optimizer of gossamer.optim, made after the TrainingArguments: "
                "GossipTrainer(model, args, optimizers=(optimizer, None), ...)."
            )
        if args is None:
            raise InputError("GossipTrainer needs TrainingArguments: GossipTrainer(model, args, ...).")
        args = copy.copy(args)
        args.output_dir = str(Path(args.output_dir, f"node-{optimizer.node_name}"))
        with one_process():
            args.__dict__.pop("_setup_devices", None)  # so that they look again, and find one process
            with _silenced("transformers.training_args"):  # it would recommend DistributedDataParallel
                _ = args.device
            super().__init__(model, args, **options)

    @property
    def _gossip(self) -> DecentralizedOptimizer:
        """The optimizer, which Accelerate wraps."""
        return cast(DecentralizedOptimizer, getattr(self.optimizer, "optimizer", self.optimizer))

    def set_initial_training_values(self, args: Any, dataloader: Any) -> Any:
        """As many steps on every node as on the one with the most data."""
        values = super().set_initial_training_values(args, dataloader)
        saving = str(getattr(args.save_strategy, "value", args.save_strategy))
        told = self._gossip.network.join(
            {"save_strategy": saving, "save_steps": str(args.save_steps), "max_steps": args.max_steps},
            {"steps": values[-1], "of an epoch": values[1]},
        )
        if saving == "best" or (saving == "epoch" and len({t["of an epoch"] for t in told}) > 1):
            raise InputError(
                f"All nodes must save after the same steps, but with save_strategy='{saving}' each would save when its "
                f"own epochs end or its own metric improves; give save_strategy='steps' and save_steps."
            )
        if args.max_steps > 0 or values[-1] == (longest := max(t["steps"] for t in told)):
            return values
        args.max_steps = longest
        return super().set_initial_training_values(args, dataloader)

    def _init_training_state(self, max_steps: int, steps_of_epoch: int, epochs: int, *options: Any) -> Any:
        """Where to continue: nowhere after the last step, where Trainer makes one more if the epoch is not over."""
        place = super()._init_training_state(max_steps, steps_of_epoch, epochs, *options)
        return place if self.state.global_step < max_steps else (epochs, 0)

    def train(self, resume_from_checkpoint: str | bool | None = None, **options: Any) -> Any:
        """Train; with `resume_from_checkpoint=True` from the newest checkpoint that is complete on all nodes."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = self._newest_of_all()
        result = super().train(resume_from_checkpoint, **options)
        self._gossip.close()
        return result

    def _newest_of_all(self) -> str | None:
        here = [int(path.parent.name.rpartition("-")[2]) for path in Path(self.args.output_dir).glob(f"*/{COMPLETE}")]
        told = self._gossip.network.join(own={"steps": here})
        common = set.intersection(*(set(t["steps"]) for t in told))
        return str(Path(self.args.output_dir, f"checkpoint-{max(common)}")) if common else None

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save; old checkpoints are removed only when all nodes have the new one."""
        directory = Path(self._get_output_dir(trial=trial))
        complete = directory / f"checkpoint-{self.state.global_step}" / COMPLETE
        complete.unlink(missing_ok=True)
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        write_text(complete, f"{self.state.global_step}\n")
        self._gossip.network.join()
        best = self.state.best_model_checkpoint
        rotate_checkpoints(str(directory), save_total_limit=limit, best_model_checkpoint=best, use_mtime=True)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Write the model on every node: `save_pretrained` does so on rank 0 only, whatever it is told."""
        self.model.should_save_on_this_rank = lambda is_main_process: True
        try:
            super()._save(output_dir, state_dict)
        finally:
            del self.model.should_save_on_this_rank

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add this node's figures to those of the training."""
        if "loss" in logs:
            stats = self._gossip.stats()
            stats["wait_seconds"] = sum(stats["wait_seconds"].values())
            logs = {**logs, **{f"gossip_{key}": value for key, value in stats.items()}}
        super().log(logs, start_time)
