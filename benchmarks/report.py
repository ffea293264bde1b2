"""How long `gossamer report` takes for many stored runs, its page included.

    python benchmarks/report.py [--runs 1000] [--evaluations 20] [--json FILE]

One short training is run and stored many times under other names: 6 methods, 3 step sizes, 3 seeds, as many
settings as it takes. Limit: 20 s for 1,000 runs.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from _measurements import Measurement, finish, options_of

from gossamer.experiments.experiment import Experiment
from gossamer.experiments.training import train

METHODS = ("dsgd", "dsgdm", "qg-dsgdm", "decentlam", "gradient-tracking", "momentum-tracking")


def store(directory: Path, number: int, evaluations: int) -> None:
    """Write `number` runs."""
    base = Experiment(rounds=evaluations, batch_size=8, nodes=8, evaluations=evaluations)
    run = train(base, directory / "first")
    figures = (run.directory / "metrics.jsonl").read_bytes()
    done = (run.directory / "done.json").read_bytes()
    grid = product(range(number), METHODS, (0.1, 0.01, 0.001), range(3))
    for k, (setting, method, lr, seed) in zip(range(number), grid, strict=False):
        changes = {"method": method, "lr": lr, "seed": seed, "weight_decay": 1e-4 * setting}
        experiment = Experiment.from_dict({**base.to_dict(), **changes})
        about = {**run.about, "experiment": experiment.to_dict(), "cell": experiment.cell, "label": experiment.label}
        target = directory / f"run-{k:05}"
        target.mkdir()
        (target / "run.json").write_text(json.dumps(about))
        (target / "metrics.jsonl").write_bytes(figures)
        (target / "done.json").write_bytes(done)
    shutil.rmtree(run.directory)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--evaluations", type=int, default=20, help="rows of figures per run")
    options = options_of(parser)
    with TemporaryDirectory() as place:
        runs, page = Path(place) / "runs", Path(place) / "report.html"
        store(runs, options.runs, options.evaluations)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "gossamer", "report", str(runs), "-o", str(page)], check=True)
        seconds = time.perf_counter() - began
        limit = 20 * max(1.0, options.runs / 1000)
        took = Measurement(f"gossamer report, {options.runs:,} runs", seconds, "s", limit)
        print(f"{took.what}: {took.value:.1f} s (limit {took.limit:g}), {page.stat().st_size / 1e6:.1f} MB")
    return finish([took], options)


if __name__ == "__main__":
    sys.exit(main())
