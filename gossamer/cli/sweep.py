"""`gossamer sweep`: many trainings from one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gossamer._common.formatting import say
from gossamer.cli.options import Load, Only, Whole, words

if TYPE_CHECKING:
    from gossamer.experiments.grid import Grid
    from gossamer.experiments.selection import Cell
    from gossamer.experiments.sweep import SweepOutcome


def sweep(
    file: Path,
    *,
    out: Path | None = None,
    jobs: Whole = 1,
    launcher: Literal["processes", "local", "slurm"] = "processes",
    logger: str = "",
    data_dir: Path | None = None,
    device: str = "cpu",
    only: Only = (),
    load: Load = (),
    slurm_partition: str | None = None,
    slurm_time: Whole | None = None,
    slurm_cpus_per_task: Whole | None = None,
    slurm_mem_gb: float | None = None,
    slurm_account: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Run every experiment of a grid; a sweep that was stopped continues when it is started again.

    The file holds the settings of `gossamer run`; a list of values is an axis of the grid. Prints a ranking: every
    method with its best step size, chosen on validation data. Finished runs are kept, unless the method or the
    graph comes from a file that you have edited since.

    Example: gossamer sweep grid.toml --jobs 2 --only method=dsgdm seed=0,1

    Parameters
    ----------
    file
        TOML file: method = ["dsgdm", "momentum-tracking"], lr = [0.1, 0.01], seed = [0, 1, 2], [[override]] tables.
    out
        Directory of the runs; by default runs/NAME, the name of the grid or of the file. Two sweeps may share one.
    jobs
        Number of runs at the same time; the cores are divided evenly.
    launcher
        Where to run: processes on this machine, or jobs of submitit (local, or slurm for a cluster).
    logger
        Also log to tensorboard, wandb or wandb-offline (separated by commas).
    data_dir
        Directory in which to look for datasets first.
    device
        cpu, cuda or mps.
    only
        Run only a part: key=value conditions on the settings, k or alpha, such as method=dsgdm seed=0,1.
    load
        Python file that defines your own methods; may be repeated.
    slurm_partition
        SLURM: the partition. These options can also be set in a table [slurm] of the file.
    slurm_time
        SLURM: time limit of each job in minutes; start the sweep again to continue.
    slurm_cpus_per_task
        SLURM: cores of each job.
    slurm_mem_gb
        SLURM: memory of each job in GB.
    slurm_account
        SLURM: the account.
    dry_run
        List the runs and their status, and do nothing.
    json
        Print JSON instead of a table.
    """
    from gossamer.cli.progress import sweep_progress
    from gossamer.experiments.grid import read_grid
    from gossamer.experiments.grid_filter import part_of, wanted
    from gossamer.experiments.selection import select
    from gossamer.experiments.store import runs_of
    from gossamer.experiments.sweep import run_sweep
    from gossamer.experiments.user_files import load_python

    load_python(load)
    grid = part_of(read_grid(file), wanted(only))
    directory = out or Path("runs") / (grid.name or file.stem)
    if dry_run:
        _show_plan(grid, directory, json)
        return
    asked = {
        "partition": slurm_partition,
        "time": slurm_time,
        "cpus_per_task": slurm_cpus_per_task,
        "mem_gb": slurm_mem_gb,
        "account": slurm_account,
    }
    with sweep_progress(grid.name or file.stem, grid.experiments, directory) as advance:
        outcome = run_sweep(
            grid.experiments,
            directory,
            jobs=jobs,
            launcher=launcher,
            slurm={**grid.slurm, **{key: value for key, value in asked.items() if value is not None}},
            data_dir=data_dir,
            device=device,
            loggers=words(logger),
            project=grid.name or file.stem,
            load=load,
            on_progress=advance,
        )
    cells = select(runs_of(grid.experiments, directory))
    _show(cells, outcome, directory, json)
    if outcome.failed or outcome.unfinished:
        raise SystemExit(1)


def _show_plan(grid: "Grid", directory: Path, as_json: bool) -> None:
    from gossamer._common.formatting import word
    from gossamer.cli.output import differing, print_json, print_table
    from gossamer.experiments.store import StoredRun

    states = [StoredRun(directory / e.id).status_in_plan for e in grid.experiments]
    if as_json:
        found = zip(grid.experiments, states, strict=True)
        print_json([{"id": e.id, "status": status, "experiment": e.to_dict()} for e, status in found])
        return
    varying = differing([e.to_dict() for e in grid.experiments])
    rows = [
        [e.id, status, *(word(getattr(e, key)) for key in varying)]
        for e, status in zip(grid.experiments, states, strict=True)
    ]
    finished = sum(status in ("done", "diverged") for status in states)
    print_table(["run", "status", *varying], rows, figures=False)
    say(f"{len(rows)} runs in {directory}, {finished} of them finished, {len(rows) - finished} to make")


def _show(cells: "list[Cell]", outcome: "SweepOutcome", directory: Path, as_json: bool) -> None:
    import dataclasses

    from gossamer.cli.output import print_json, print_ranking

    if as_json:
        values = {**dataclasses.asdict(outcome), "directory": str(directory)}
        print_json({**values, "cells": [cell.to_dict() for cell in cells]})
        return
    print_ranking(cells)
    say(f"runs: {directory} ({outcome.sentence})")
