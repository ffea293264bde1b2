"""`gossamer run`: one training."""

import logging
import os
import sys
from pathlib import Path

from gossamer.cli.options import ExperimentSettings, Given, Load, Whole, words


def run(
    file: Path | None = None,
    *,
    settings: ExperimentSettings = Given(),  # noqa: B008 - immutable
    out: Path | None = None,
    data_dir: Path | None = None,
    workers: Whole | None = None,
    device: str = "cpu",
    timeout: float = 1800.0,
    logger: str = "",
    load: Load = (),
    json: bool = False,
) -> None:
    """Train one model across the nodes; a run that was stopped continues from its checkpoint.

    Simulates all nodes on this machine. Under torchrun every node is a process:
    torchrun --nproc-per-node 8 -m gossamer run experiment.toml

    If the method or the graph comes from a file that you have edited since, the run starts again.

    Example: gossamer run experiment.toml --method dsgdm --lr 0.05

    Parameters
    ----------
    file
        TOML file with any of the settings below; options on the command line override it.
    out
        Directory of the run; by default runs/ID, where ID is a hash of the settings.
    data_dir
        Directory in which to look for datasets first.
    workers
        Threads that share the nodes; one per core by default. The result is the same for any number.
    device
        cpu, cuda or mps.
    timeout
        Under torchrun: seconds until a silent node is given up.
    logger
        Also log to tensorboard, wandb or wandb-offline (separated by commas).
    load
        Python file that defines your own methods; may be repeated.
    json
        Print JSON instead of a table.
    """
    from gossamer.cli.output import print_run
    from gossamer.cli.progress import evaluation_lines
    from gossamer.experiments.experiment import Experiment
    from gossamer.experiments.grid import read_experiment
    from gossamer.experiments.locks import alone
    from gossamer.experiments.loggers import check_loggers, logging_to
    from gossamer.experiments.training import Execution, train
    from gossamer.experiments.user_files import load_python

    load_python(load)
    experiment = read_experiment(file, **settings.flags) if file else Experiment(**settings.flags)
    real = "TORCHELASTIC_RUN_ID" in os.environ
    directory = out or Path("runs") / (f"{experiment.id}-processes" if real else experiment.id)
    names = words(logger)
    check_loggers(names)
    with logging_to(names, directory, experiment, project="gossamer") as loggers:
        lines = [evaluation_lines(experiment)] if real or not sys.stderr.isatty() else []
        callbacks = [*loggers, *lines]
        execution = Execution(data_dir=data_dir, workers=workers, device=device, timeout=timeout, callbacks=callbacks)
        if real:
            from gossamer.experiments.real_nodes import Voice, train_here

            logging.getLogger("gossamer").addHandler(Voice(logging.WARNING))
            finished = train_here(experiment, directory, execution)
        else:
            with alone(directory):
                finished = train(experiment, directory, execution)
    if finished is not None:  # under torchrun only node 0 has it
        print_run(finished, json)
