"""Lightning: a strategy under which every process is a node with a model and data of its own."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from gossamer.errors import InputError
from gossamer.optim import DecentralizedOptimizer
from gossamer.optim.checkpointing import generator_states, restore_generators

try:
    from lightning.pytorch.strategies import DDPStrategy
except ImportError:
    raise InputError("GossipStrategy needs Lightning; run: pip install 'gossamer[lightning]'.") from None


class GossipStrategy(DDPStrategy):
    """Train a LightningModule with a Gossamer optimizer: `Trainer(strategy=GossipStrategy(), devices=..., ...)`.

    Lightning brings up the process group. The model stays as it is, without DistributedDataParallel, and the training
    data of a process are its own: its sampler is left alone, and where nodes have different numbers of batches, an
    epoch is one pass over the largest and smaller ones begin again, so that all make equally many steps.

    A checkpoint is a directory with a file per node. It is complete when all nodes have written theirs. With
    `fit(ckpt_path=...)` every node continues from its own to the same bits, from the middle of an epoch too. The
    `stats()` of all nodes are logged every `log_every_n_steps` as gossip/<figure>/node-<name>.

    The arguments are those of Lightning's DDPStrategy that concern the process group, such as
    `process_group_backend="gloo"` and `timeout`.
    """

    strategy_name = "gossip"

    _loader: "SiteLoader | None" = None
    _logged = 0
    # What a checkpoint holds, until it is used:
    _place: dict[str, Any] | None = None
    _generators: dict[str, Any] | None = None

    # One model and its own data per process --------------------------------------------------------------------------

    def setup(self, trainer: Any) -> None:
        """Without what DDPStrategy does here: wrapping the model, or overwriting it with that of rank 0."""
        trainer._accelerator_connector.use_distributed_sampler = False
        self._place = self._generators = None
        super(DDPStrategy, self).setup(trainer)

    def _setup_model(self, model: Any) -> Any:
        return model

    def setup_optimizers(self, trainer: Any) -> None:
        """Make the module's optimizers, which must be Gossamer's: with others the nodes would train apart."""
        super().setup_optimizers(trainer)
        for optimizer in self.optimizers:
            if not isinstance(optimizer, DecentralizedOptimizer):
                raise InputError(
                    f"GossipStrategy needs an optimizer of gossamer.optim, but configure_optimizers() returned a "
                    f"{type(optimizer).__name__}, with which the nodes would learn nothing of each other."
                )

    def process_dataloader(self, dataloader: Any) -> Any:
        """The training loader of this node, as long as that of the largest. One without length is left alone."""
        if not self._trainer.training or not has_length(dataloader):
            return dataloader
        longest = self.reduce(torch.tensor(len(dataloader), device=self.root_device), reduce_op="max")
        self._loader = SiteLoader(dataloader, int(longest))
        if self._place is not None:
            self._loader.load_state_dict(self._place)
        return self._loader

    @property
    def _trainer(self) -> Any:
        return self.lightning_module.trainer

    # Checkpoints -----------------------------------------------------------------------------------------------------

    @property
    def node_name(self) -> str:
        """What this process's node is called in checkpoints and logs."""
        for optimizer in self.optimizers:
            return str(optimizer.node_name)
        return os.environ.get("GOSSAMER_NODE", str(self.global_rank))  # there is no optimizer without fit()

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        """The optimizer knows which node this is."""
        return True

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Path | str, storage_options: Any = None) -> None:
        """Write this node's file."""
        place = None if self._loader is None else self._loader.state_dict()
        checkpoint["gossamer"] = {"node": self.node_name, "place": place, "generators": generator_states()}
        path = self._file(self.broadcast(str(filepath)))
        self.checkpoint_io.save_checkpoint(checkpoint, path, storage_options=storage_options)

    def load_checkpoint(self, checkpoint_path: Path | str, weights_only: bool | None = None) -> dict[str, Any]:
        """Read this node's file; on no node unless all have theirs."""
        path = self._file(checkpoint_path)
        here = path.exists()
        if not self.reduce_boolean_decision(here, all=True):
            who = "another node has no file in it" if here else f"node {self.node_name} has no file {path}"
            raise InputError(
                f"The checkpoint {checkpoint_path} is not complete: {who}; give an older one that all nodes have."
            )
        # Unless the user asks for it, nothing is unpickled.
        saved: dict[str, Any] = super().load_checkpoint(
            path, weights_only=True if weights_only is None else weights_only
        )
        self._place, self._generators = saved["gossamer"]["place"], saved["gossamer"]["generators"]
        return saved

    def remove_checkpoint(self, filepath: Path | str) -> None:
        """Remove this node's file, and the directory after the last."""
        self.checkpoint_io.remove_checkpoint(self._file(filepath))
        with suppress(OSError):  # the files of other nodes are still there, or the last of them was quicker
            Path(filepath).rmdir()

    def _file(self, path: Path | str) -> Path:
        return Path(path) / f"node-{self.node_name}.ckpt"

    # Training --------------------------------------------------------------------------------------------------------

    def on_train_start(self) -> None:
        """Random numbers continue where the checkpoint left them; before this, Lightning has drawn some."""
        if self._generators is not None:
            restore_generators(self._generators)
            self._generators = None

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Log what the nodes have sent and waited for, as often as the trainer logs."""
        round = self.optimizers[0].round
        if round > self._logged and round % self._trainer.log_every_n_steps == 0:
            self._log_stats(round)

    def on_train_end(self) -> None:
        """Log the last figures, and wait for the last message."""
        self._log_stats(self.optimizers[0].round)
        for optimizer in self.optimizers:
            optimizer.close()

    def _log_stats(self, round: int) -> None:
        self._logged = round
        if not self._trainer.loggers:
            return
        stats = self.optimizers[0].stats()
        stats["wait_seconds"] = sum(stats["wait_seconds"].values())
        told = self.optimizers[0].network.join(own={"name": self.node_name, "stats": stats})
        figures = {f"gossip/{k}/node-{t['name']}": float(v) for t in told for k, v in t["stats"].items()}
        for logger in self._trainer.loggers:
            logger.log_metrics(figures, step=round)


def has_length(loader: Any) -> bool:
    """Whether a loader knows how many batches it has; that of an IterableDataset may not."""
    try:
        return len(loader) >= 0
    except TypeError:
        return False


class SiteLoader:
    """The loader of one node, `length` batches an epoch: a shorter one begins again. It knows its place for restarts.

    >>> list(SiteLoader([1, 2, 3], 5))
    [1, 2, 3, 1, 2]
    """

    def __init__(self, loader: Any, length: int) -> None:
        if not len(loader):
            raise InputError("The training loader of this node gives no batch; every node needs at least one.")
        self.loader, self.length = loader, length
        self._passes = self._of_epoch = self._of_pass = 0
        self._began: dict[str, Any] = {}
        self._resumes = False

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        again = self._of_pass if self._resumes and self._of_epoch < self.length else 0
        self._resumes = False
        if not again:
            self._of_epoch = 0
        while self._of_epoch < self.length:
            if again:
                # The batches of the pass that was interrupted are drawn again; then all goes on from where it was.
                now = generator_states()
                self._restore(self._began)
            else:
                self._began = self._draws()
                self._passes += 1
            set_epoch = getattr(getattr(self.loader, "sampler", None), "set_epoch", None)
            if set_epoch is not None:
                set_epoch(self._passes - 1)
            self._of_pass = 0
            for batch in self.loader:
                self._of_pass += 1
                if self._of_pass > again:
                    self._of_epoch += 1
                    yield batch
                    if self._of_epoch == self.length:
                        return
                elif self._of_pass == again:
                    restore_generators(now)
            again = 0

    def _draws(self) -> dict[str, Any]:
        """The generators from which batches are drawn: the process's and those of loader and sampler."""
        return {"process": generator_states(), "own": [g.get_state() for g in self._own()]}

    def _restore(self, states: Mapping[str, Any]) -> None:
        restore_generators(states["process"])
        for generator, state in zip(self._own(), states["own"], strict=True):
            generator.set_state(state)

    def _own(self) -> list[torch.Generator]:
        sampler = getattr(self.loader, "sampler", None)
        given = (getattr(owner, "generator", None) for owner in (self.loader, sampler))
        return list({id(g): g for g in given if isinstance(g, torch.Generator)}.values())

    def state_dict(self) -> dict[str, Any]:
        """The place in the epoch and in the data, with the generators as they are and as they were at its beginning."""
        place = {"passes": self._passes, "of_epoch": self._of_epoch, "of_pass": self._of_pass}
        return {**place, "began": self._began, "own": self._draws()["own"]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there when the next epoch is begun."""
        self._passes, self._of_epoch, self._of_pass = state["passes"], state["of_epoch"], state["of_pass"]
        self._began, self._resumes = state["began"], True
        for generator, own in zip(self._own(), state["own"], strict=True):
            generator.set_state(own)
