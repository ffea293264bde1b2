"""The paper's Fashion-MNIST experiment at full length: 8 LeNets, 4 classes per node, Momentum Tracking, 500 epochs.

    python benchmarks/full_length.py [--epochs 500] [--json FILE]

This is one run of Table 2 with every evaluation that the paper has (50, on the validation and the test set), with data
and augmentation, from reading the files to the finished run on disk. Limit: 600 s. A shorter run, for a trial, has as
many evaluations per epoch and no limit. Without the files (GOSSAMER_DATA says where they are) nothing is run.
"""

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from _measurements import Measurement, finish, options_of

from gossamer.errors import GossamerError
from gossamer.experiments.grid_filter import part_of
from gossamer.experiments.paper import recipes
from gossamer.experiments.training import prepare, train

PANEL = {"dataset": ["fashion-mnist"], "k": ["4"], "method": ["momentum-tracking"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=500)
    options = options_of(parser)
    [paper] = part_of(recipes.read("table2", lrs=[0.005], seeds=[0]), PANEL).experiments
    evaluations = max(1, round(options.epochs / paper.epochs * paper.evaluations))
    experiment = dataclasses.replace(paper, epochs=options.epochs, evaluations=evaluations)
    try:
        prepare(experiment, None)
    except GossamerError as error:
        print(f"Skipped: {error}")
        return 0
    with TemporaryDirectory() as directory:
        began = time.perf_counter()
        run = train(experiment, Path(directory) / "run")
        seconds = time.perf_counter() - began
        last = run.rows[-1]
    what = f"{options.epochs} epochs, evaluations: {evaluations}"
    measurements = [
        Measurement(f"{what}: whole run", seconds, "s", 600 if options.epochs == paper.epochs else None),
        Measurement(f"{what}: training rounds alone", last["seconds"], "s"),
        Measurement(f"{what}: test accuracy", last["accuracy"], "share"),
    ]
    for m in measurements:
        print(f"{m.what}: {m.value:.3g}{' s' if m.unit == 's' else ''}  {m.judgement}".rstrip())
    return finish(measurements, options)


if __name__ == "__main__":
    sys.exit(main())
