"""Real runs, made once and quickly, and copies of them that say they are something else."""

import json
import shutil
from pathlib import Path
from typing import Any

from gossamer.experiments.experiment import Experiment
from gossamer.experiments.store import StoredRun
from gossamer.experiments.training import train

METHODS = ("dsgdm", "gradient-tracking", "momentum-tracking")
BASE: dict[str, Any] = {"rounds": 8, "batch_size": 16, "nodes": 4, "partition": "k-class:k=5", "evaluations": 4}


def make_runs(directory: Path) -> list[StoredRun]:
    """Three methods, two step sizes, two seeds."""
    experiments = [
        Experiment(method=method, lr=lr, seed=seed, **BASE)
        for method in METHODS for lr in (0.02, 0.05) for seed in (0, 1)
    ]  # fmt: skip
    return [train(experiment, directory / experiment.id) for experiment in experiments]


def copied(run: StoredRun, directory: Path, *, label: str = "", **changes: Any) -> StoredRun:
    """The run in another directory, under another experiment's name; its figures stay what they were."""
    shutil.copytree(run.directory, directory)
    about = json.loads((directory / "run.json").read_text())
    experiment = Experiment.from_dict({**about["experiment"], **changes})
    about["experiment"] = experiment.to_dict()
    about["graph"]["name"] = experiment.topology
    if label:
        about |= {"label": label, "cell": f"{label}-{json.dumps(changes)}"}
    else:
        about |= {"label": experiment.label, "cell": experiment.cell}
    (directory / "run.json").write_text(json.dumps(about))
    return StoredRun(directory)


def unfinished(run: StoredRun, rows: int) -> StoredRun:
    """Take the end of a run away, as a crash does."""
    (run.directory / "done.json").unlink()
    lines = (run.directory / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run.directory / "metrics.jsonl").write_text("".join(lines[:rows]))
    return StoredRun(run.directory)


def marked(run: StoredRun, status: str) -> StoredRun:
    """Say that a run diverged or failed."""
    (run.directory / "done.json").write_text(json.dumps({"status": status, "reason": "The loss is nan.", "seconds": 1}))
    return StoredRun(run.directory)
