"""Loggers that take a run's figures besides metrics.jsonl: TensorBoard and Weights & Biases."""

import importlib.util
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gossamer._common.formatting import Row
from gossamer.errors import InputError, unknown
from gossamer.experiments.experiment import Experiment

LOGGERS = {"tensorboard": "tensorboard", "wandb": "wandb", "wandb-offline": "wandb"}
"""The loggers and the package that each needs."""

log = logging.getLogger("gossamer")

Callback = Callable[[Row], None]


def check_loggers(names: Sequence[str]) -> None:
    """Refuse loggers that are unknown or not installed, before any run is made."""
    for name in names:
        if name not in LOGGERS:
            raise unknown("logger", name, LOGGERS)
        package = LOGGERS[name]
        if importlib.util.find_spec(package) is None:
            raise InputError(f"The logger {name} needs {package}; run: pip install 'gossamer[{package}]'.")


@contextmanager
def logging_to(names: Sequence[str], directory: Path, experiment: Experiment, project: str) -> Iterator[list[Callback]]:
    """A callback for each logger, to be called with every row of figures; all are closed at the end.

    A logger that fails (say, an unreachable server) is switched off for the rest of the run, with a warning.
    """
    with ExitStack() as stack:
        yield [_forgiving(name, _OPEN[name](stack, directory, experiment, project)) for name in names]


def _tensorboard(stack: ExitStack, directory: Path, experiment: Experiment, project: str) -> Callback:
    writers: list[Any] = []

    def take(row: Row) -> None:
        if not writers:
            from torch.utils.tensorboard import SummaryWriter

            # Discard what an attempt that crashed wrote for this round and later.
            writer = SummaryWriter(directory / "tensorboard", purge_step=row["round"])
            stack.callback(_forgiving("tensorboard", lambda row: writer.close()), row)
            writer.add_text("experiment", f"```\n{json.dumps(experiment.to_dict(), indent=1)}\n```", row["round"])
            writers.append(writer)
        for name, value in _figures(row).items():
            writers[0].add_scalar(name, value, row["round"])

    return take


def _wandb(stack: ExitStack, directory: Path, experiment: Experiment, project: str, offline: bool = False) -> Callback:
    runs: list[Any] = []

    def take(row: Row) -> None:
        if not runs:
            import wandb

            directory.mkdir(parents=True, exist_ok=True)
            run = wandb.init(
                project=project,
                id=experiment.id,
                name=f"{experiment.label} lr={experiment.lr:g} seed={experiment.seed}",
                group=experiment.cell,
                config=experiment.to_dict(),
                dir=directory,
                resume="allow",
                mode="offline" if offline else None,
                reinit="finish_previous",
                settings=wandb.Settings(silent=True, console="off"),
            )
            stack.callback(_forgiving("wandb", lambda row: run.finish()), row)
            runs.append(run)
        runs[0].log({"round": row["round"], **_figures(row)}, step=row["round"])

    return take


def _wandb_offline(stack: ExitStack, directory: Path, experiment: Experiment, project: str) -> Callback:
    return _wandb(stack, directory, experiment, project, offline=True)


_OPEN = {"tensorboard": _tensorboard, "wandb": _wandb, "wandb-offline": _wandb_offline}


def _figures(row: Row) -> dict[str, float]:
    """The numbers of a row; those of single nodes as name/0, name/1, ..., by their numbers also where some are away."""
    found: dict[str, float] = {}
    nodes = row.get("present")
    for name, value in row.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "round":
            found[name] = value
        elif isinstance(value, list) and name.startswith("node_"):
            numbered = zip(nodes or range(len(value)), value, strict=True)
            found |= {f"{name}/{k}": v for k, v in numbered if isinstance(v, int | float)}
    if nodes is not None:
        found["present"] = len(nodes)
    return found


def _forgiving(name: str, take: Callback) -> Callback:
    failed: list[Exception] = []

    def careful(row: Row) -> None:
        if failed:
            return
        try:
            take(row)
        except Exception as error:
            failed.append(error)
            log.warning("The logger %s failed (%s) and is switched off for the rest of this run.", name, error)

    return careful
