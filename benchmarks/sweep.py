"""The overhead of a sweep: 200 tiny runs with 2 jobs.

    python benchmarks/sweep.py [--runs 200] [--jobs 2] [--rounds 30] [--json FILE]

Outside training = 1 - (sum of the runs' own seconds, rounds and evaluations) / (jobs x wall-clock seconds of the whole
sweep). It includes starting the jobs, locking, reading and splitting data, marking runs as done, and waiting for the
last one. Limit: 15 %.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from _measurements import Measurement, finish, options_of

from gossamer._common.formatting import progress_bar
from gossamer.experiments.grid import Grid
from gossamer.experiments.store import StoredRun
from gossamer.experiments.sweep import run_sweep

LIMIT = 0.15


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30, help="length of each run on the 1,797 digits")
    options = options_of(parser)
    grid = Grid.from_dict(
        {
            "method": ["dsgdm", "momentum-tracking"],
            "lr": [0.1, 0.01],
            "seed": list(range(-(-options.runs // 4))),
            "rounds": options.rounds,
            "batch_size": 32,
            "evaluations": 2,
            "nodes": 4,
            "partition": "k-class:k=5",
        }
    )
    experiments = grid.experiments[: options.runs]
    with tempfile.TemporaryDirectory() as folder, progress_bar("sweep") as advance:
        outcome = run_sweep(experiments, folder, jobs=options.jobs, on_progress=advance)
        outcomes = [StoredRun(Path(folder) / e.id).outcome or {} for e in experiments]
    training = sum(o["seconds"] for o in outcomes)
    outside = 1 - training / (options.jobs * outcome.seconds)
    per_run = Measurement("training per run", training / len(experiments), "s")
    beside = Measurement("outside training", outside, "share", LIMIT)
    done = Measurement("runs done", outcome.done / len(experiments), "share", 1.0, at_most=False)
    print(
        f"{outcome.sentence}, {options.jobs} jobs: {per_run.value:.2f} s of training per run, "
        f"{100 * beside.value:.1f} % {beside.what} (limit {100 * beside.limit:.0f})"
    )
    return finish([per_run, beside, done], options)


if __name__ == "__main__":
    sys.exit(main())
