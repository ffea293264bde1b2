"""What four processes do with Lightning: python -m tests.integrations.lightning_runs DIRECTORY"""

import doctest
import os
import signal
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import gossamer
from gossamer.integrations.lightning import GossipStrategy
from tests.integrations.launch import N, launch, plain_steps
from tests.optim.tasks import flat

EPOCHS, LONGEST = 2, 6


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))


def own_loader(rank: int) -> DataLoader[Any]:
    """3, 4, 5 or 6 batches."""
    generator = torch.Generator().manual_seed(rank)
    size = 4 * (LONGEST - N + 1 + rank)
    inputs, targets = (torch.randn(size, k, generator=generator) + rank for k in (3, 1))
    return DataLoader(TensorDataset(inputs, targets), batch_size=4, shuffle=True)


def optimizer_for(model: nn.Module) -> gossamer.optim.DecentralizedOptimizer:
    return gossamer.optim.MomentumTracking(
        model.parameters(), lr=0.02, weight_decay=1e-2, decoupled=True, topology="ring", timeout=120
    )


class Module(pl.LightningModule):
    def __init__(self, rank: int, kill_at: int | None = None) -> None:
        super().__init__()
        self.rank, self.kill_at = rank, kill_at
        self.net = network()
        self.trace: list[Tensor] = []

    def configure_optimizers(self) -> Any:
        optimizer = optimizer_for(self.net)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_start(self) -> None:
        torch.manual_seed(100 + self.rank)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = (self.net(batch[0]) - batch[1]).square().mean()
        self.log("loss", loss.detach(), sync_dist=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("validation loss", (self.net(batch[0]) - batch[1]).square().mean())

    def on_train_batch_end(self, *_: Any) -> None:
        self.trace.append(flat(self.net))
        if self.kill_at == len(self.trace) and self.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)


def fit(module: Module, place: Path, strategy: Any = None, ckpt_path: str | None = None, **checkpoints: Any) -> Any:
    callbacks = [ModelCheckpoint(place / "checkpoints", **checkpoints)] if checkpoints else []
    trainer = pl.Trainer(
        strategy=strategy or GossipStrategy(), accelerator="cpu", devices=N, max_epochs=EPOCHS, log_every_n_steps=3,
        default_root_dir=place, logger=CSVLogger(place), callbacks=callbacks, enable_checkpointing=bool(callbacks),
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(module, own_loader(module.rank), ckpt_path=ckpt_path)
    return trainer


def plain_loop(rank: int) -> Tensor:
    model, loader = network(), own_loader(rank)
    optimizer = optimizer_for(model)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5)
    torch.manual_seed(100 + rank)
    batches = (batch for _ in range(EPOCHS) for batch in gossamer.rounds(loader, LONGEST))
    losses = ((model(inputs) - targets).square().mean() for inputs, targets in batches)
    return plain_steps(model, optimizer, schedule, losses, clip=None)


def whole(rank: int, place: Path) -> dict[str, Any]:
    module = Module(rank)
    trainer = fit(module, place, every_n_epochs=1, save_top_k=-1)
    trainer.validate(module, own_loader(rank), verbose=False)
    own = flat(module.net)
    gossamer.average_(module)
    return {
        "trace": torch.stack(module.trace),
        "plain": plain_loop(rank),
        "kept": torch.equal(own, module.trace[-1]),
        "average": flat(module.net),
    }


def killed(rank: int, place: Path) -> None:
    fit(Module(rank, kill_at=5), place, every_n_train_steps=2, save_top_k=1)


def resumed(rank: int, place: Path, finished: Path) -> dict[str, Any]:
    module = Module(rank)
    (newest,) = (place / "checkpoints").glob("*.ckpt")  # the older one was removed by all nodes
    dist.init_process_group("gloo")
    dist.barrier()
    fit(module, place, ckpt_path=str(newest), every_n_train_steps=2, save_top_k=1)
    later = Module(rank)
    fit(later, place / "later", ckpt_path=str(next((finished / "checkpoints").glob("epoch=0*.ckpt"))))
    half = place / "half.ckpt"
    if rank == 0:
        half.mkdir()
        (half / "node-0.ckpt").write_text("")
    dist.barrier()
    try:
        fit(Module(rank), place / "half", ckpt_path=str(half))
        refused = ""
    except gossamer.InputError as error:
        refused = str(error)
    return {"middle": torch.stack(module.trace), "end": torch.stack(later.trace), "refused": refused}


class Foreign(Module):
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def wrong(rank: int, place: Path) -> dict[str, str]:
    said = {}
    for name, module, strategy in (("other optimizer", Foreign(rank), None), ("ddp", Module(rank), "ddp")):
        try:
            fit(module, place, strategy=strategy)
        except gossamer.InputError as error:
            said[name] = str(error)
    return said


if __name__ == "__main__":
    out = Path(sys.argv[1])
    assert doctest.testmod(gossamer.integrations.lightning).failed == 0
    results = {
        "whole": launch(out, whole, out / "whole"),
        "wrong": launch(out, wrong, out / "wrong"),
        "killed": launch(out, killed, out / "killed"),
        "resumed": launch(out, resumed, out / "killed", out / "whole"),
    }
    torch.save(results, out / "results.pt")
