"""What four processes do with Hugging Face: python -m tests.integrations.transformers_runs DIRECTORY"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

import gossamer
from gossamer.integrations.transformers import GossipTrainer, one_process
from tests.integrations.launch import launch, plain_steps
from tests.optim.tasks import flat

STEPS = 12


def language_model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0,
                                      eos_token_id=0))  # fmt: skip


def own_texts(rank: int) -> list[dict[str, Tensor]]:
    """12 to 24 texts: three to six batches."""
    generator = torch.Generator().manual_seed(rank)
    texts = torch.randint(rank, 8 + rank, (12 + 4 * rank, 8), generator=generator)
    return [{"input_ids": text, "labels": text} for text in texts]


def optimizer_for(model: Any) -> gossamer.optim.DecentralizedOptimizer:
    return gossamer.optim.GTAdam(
        model.parameters(), lr=0.01, weight_decay=0.01, decoupled=True, topology="ring", timeout=120
    )


class Watch(TrainerCallback):
    """Keeps what a plain loop needs to repeat the steps, and the model after each; kills rank 2."""

    def __init__(self, model: Any, rank: int, kill_at: int | None = None) -> None:
        self.model, self.rank, self.kill_at = model, rank, kill_at
        self.trace: list[Tensor] = []
        self.dropout: list[Tensor] = []
        self.batches: list[dict[str, Tensor]] = []

    def collate(self, texts: list[Any]) -> dict[str, Tensor]:
        self.batches.append(default_data_collator(texts))
        return dict(self.batches[-1])

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.dropout.append(torch.get_rng_state())

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trace.append(flat(self.model))
        if self.kill_at == state.global_step and self.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)


def arguments(place: Path, rank: int, **changes: Any) -> TrainingArguments:
    return TrainingArguments(
        **{
            "output_dir": str(place), "per_device_train_batch_size": 4, "num_train_epochs": 2, "logging_steps": 5,
            "save_steps": 5, "save_total_limit": 1, "seed": 100 + rank, "use_cpu": True, "report_to": "none",
            "disable_tqdm": True, "dataloader_pin_memory": False, **changes,
        }
    )  # fmt: skip


def trained(kind: Any, rank: int, place: Path, kill_at: int | None = None, resume: bool = False, **changes: Any) -> Any:
    args = arguments(place, rank, **changes)
    model = language_model()
    watch = Watch(model, rank, kill_at)
    trainer = kind(
        model,
        args,
        train_dataset=own_texts(rank),
        data_collator=watch.collate,
        optimizers=(optimizer_for(model), None),
        callbacks=[watch],
    )
    trainer.train(resume_from_checkpoint=resume or None)
    return trainer, watch


def plain_loop(watch: "Watch") -> Tensor:
    """What the Trainer does with its batches: the step size falls to 0 on a line, gradients are clipped at norm 1."""
    model = language_model().train()
    optimizer = optimizer_for(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda r: (STEPS - r) / STEPS)

    def losses() -> Iterator[Tensor]:
        for batch, dropout in zip(watch.batches, watch.dropout, strict=False):
            torch.set_rng_state(dropout)
            yield model(**batch, num_items_in_batch=batch["labels"].numel()).loss

    return plain_steps(model, optimizer, schedule, losses(), clip=1.0)


def whole(rank: int, place: Path) -> dict[str, Any]:
    trainer, watch = trained(GossipTrainer, rank, place)
    trace = torch.stack(watch.trace)
    trainer.save_model()
    again = GPT2LMHeadModel.from_pretrained(place / f"node-{rank}")
    gossamer.average_(trainer.model)
    logged = [entry["gossip_messages_sent"] for entry in trainer.state.log_history if "loss" in entry]
    return {
        "trace": trace,
        "saved": torch.equal(flat(again), trace[-1]),
        "logged": logged,
        "average": flat(trainer.model),
        "plain": plain_loop(watch),
        "accelerate": accelerate(rank),
    }


def accelerate(rank: int) -> dict[str, Any]:
    """A loop with Accelerate, as prepared by `one_process`, beside the same without."""
    traces = []
    for prepared in (True, False):
        model = language_model()
        optimizer: Any = optimizer_for(model)
        loader: Any = DataLoader(own_texts(rank), batch_size=4)
        if prepared:
            with one_process():
                accelerator = Accelerator(cpu=True)
            model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        set_seed(rank)
        for batch in gossamer.rounds(loader, 6):
            optimizer.zero_grad()
            loss = model(**batch).loss
            accelerator.backward(loss) if prepared else loss.backward()
            optimizer.step()
        traces.append(flat(model))
    return {"same": torch.equal(*traces), "left": os.environ["WORLD_SIZE"]}


def killed(rank: int, place: Path) -> None:
    trained(GossipTrainer, rank, place, kill_at=8)


def resumed(rank: int, place: Path) -> dict[str, Any]:
    # As if the kill had come while rank 1 was saving once more.
    later = place / "node-1" / "checkpoint-7"
    later.mkdir(exist_ok=True)
    _, watch = trained(GossipTrainer, rank, place, resume=True)
    trainer, more = trained(GossipTrainer, rank, place, resume=True)
    said = []
    for saving in ("epoch", "best"):
        try:
            trained(GossipTrainer, rank, place / "wrong", save_strategy=saving, metric_for_best_model="loss")
        except gossamer.InputError as error:
            said.append(str(error))
    return {
        "trace": torch.stack(watch.trace),
        "steps after the last": len(more.trace),
        "kept its model": torch.equal(flat(trainer.model), watch.trace[-1]),
        "said": said,
        "kept": sorted(p.name for p in (place / f"node-{rank}").iterdir()),
    }


def stopped_early(rank: int, place: Path, common: bool) -> dict[str, Any]:
    """Node 2's metric improves only once; with `common` all nodes go by the mean over the nodes, which falls."""
    evaluations = 0

    def compute_metrics(_: Any) -> dict[str, float]:
        nonlocal evaluations
        evaluations += 1
        found = torch.tensor(-3.0 * evaluations if rank == 2 else evaluations / 3, dtype=torch.float64)
        if common:
            dist.all_reduce(found)
            found /= dist.get_world_size()
        return {"score": float(found)}

    args = arguments(
        place, rank, eval_strategy="steps", eval_steps=2, save_steps=2, save_total_limit=None,
        load_best_model_at_end=True, metric_for_best_model="score", greater_is_better=True,
    )  # fmt: skip
    model, texts = language_model(), own_texts(rank)
    trainer = GossipTrainer(
        model,
        args,
        train_dataset=texts,
        eval_dataset=texts,
        data_collator=default_data_collator,
        compute_metrics=compute_metrics,
        optimizers=(optimizer_for(model), None),
        callbacks=[EarlyStoppingCallback(1)],
    )
    trainer.train()
    best = GPT2LMHeadModel.from_pretrained(place / f"node-{rank}" / "checkpoint-2")
    return {"steps": trainer.state.global_step, "loaded": torch.equal(flat(model), flat(best))}


def wrong(rank: int, place: Path) -> dict[str, str]:
    said = {}
    try:
        GossipTrainer(language_model(), arguments(place, rank), train_dataset=own_texts(rank))
    except gossamer.InputError as error:
        said["other optimizer"] = str(error)
    try:
        trained(Trainer, rank, place)
    except gossamer.InputError as error:
        said["Trainer"] = str(error)
    return said


if __name__ == "__main__":
    out = Path(sys.argv[1])
    torch.set_num_threads(1)
    language_model().save_pretrained(out / "first")  # what Transformers works out only once, all processes inherit
    results = {
        "whole": launch(out, whole, out / "whole"),
        "wrong": launch(out, wrong, out / "wrong"),
        "killed": launch(out, killed, out / "killed"),
        "resumed": launch(out, resumed, out / "killed"),
        "stopped by a common metric": launch(out, stopped_early, out / "common", True),
        "stopped by their own metrics": launch(out, stopped_early, out / "own", False),
    }
    torch.save(results, out / "results.pt")
