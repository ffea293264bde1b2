"""`gossamer sweep`: many trainings from one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from gossamer.cli.flags import Load
from gossamer.cli.whole import Whole

if TYPE_CHECKING:
    from gossamer.experiments.grid import Grid
    from gossamer.experiments.selection import Cell
    from gossamer.experiments.sweep import SweepOutcome

Only = Annotated[tuple[str, ...], Parameter(name="--only", negative=())]


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
    """Make every experiment of a grid. What is finished is never made again; start a stopped sweep again to go on.

    The file holds the settings of `gossamer run`; a list of values is an axis of the grid. Ends with the ranking: every
    method with its best step size, chosen by validation accuracy.

    Example: gossamer sweep grid.toml --jobs 2 --only seed=0 --only seed=1

    Parameters
    ----------
    file
        TOML file: method = ["dsgdm", "momentum-tracking"], lr = [0.1, 0.01], seed = [0, 1, 2], [[override]] tables.
    out
        Directory of the runs; by default runs/ and the name of the grid. Two sweeps may share one.
    jobs
        Runs at the same time; the cores are shared evenly.
    launcher
        Where: processes of this machine, or submitit: local, or slurm for a cluster.
    logger
        Also log to tensorboard, wandb or wandb-offline (separated by commas).
    data_dir
        Directory to look for datasets in first.
    device
        cpu, cuda or mps.
    only
        Only experiments with this value, such as seed=0; may be repeated, with the same key for either value.
    load
        Python file that defines methods of your own; may be repeated.
    slurm_partition
        SLURM: the partition. This and the others may also stand in a table [slurm] of the file.
    slurm_time
        SLURM: minutes until a job is ended; the sweep goes on when started again.
    slurm_cpus_per_task
        SLURM: cores of each job.
    slurm_mem_gb
        SLURM: memory of each job.
    slurm_account
        SLURM: the account.
    dry_run
        Say what would be done, and do nothing.
    json
        Print JSON instead of a table.
    """
    from gossamer.experiments.grid import read_grid
    from gossamer.experiments.own_methods import load_python
    from gossamer.experiments.selection import select
    from gossamer.experiments.store import StoredRun
    from gossamer.experiments.sweep import run_sweep
    from gossamer.progress import progress_bar

    load_python(load)
    grid = read_grid(file)
    if only:
        grid = grid.only(_conditions(only))
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
    with progress_bar(grid.name or file.stem) as advance:
        outcome = run_sweep(
            grid.experiments,
            directory,
            jobs=jobs,
            launcher=launcher,
            slurm={**grid.slurm, **{key: value for key, value in asked.items() if value is not None}},
            data_dir=data_dir,
            device=device,
            loggers=[name.strip() for name in logger.split(",") if name.strip()],
            project=grid.name or file.stem,
            load=load,
            on_progress=advance,
        )
    runs = [StoredRun(directory / e.id) for e in grid.experiments]
    cells = select([run for run in runs if (run.directory / "run.json").exists()])
    _show(cells, outcome, directory, json)
    if outcome.failed or outcome.unfinished:
        raise SystemExit(1)


def _conditions(only: tuple[str, ...]) -> dict[str, list[Any]]:
    """`key=value` words as the values of an experiment's fields."""
    from gossamer.errors import GossamerError, unknown
    from gossamer.experiments.experiment import Experiment

    wanted: dict[str, list[Any]] = {}
    for item in only:
        key, equals, value = item.partition("=")
        keys = Experiment.keys()
        if key not in keys:
            raise unknown("key", key, keys)
        try:
            wanted.setdefault(key, []).append(keys[key](value))
        except ValueError:
            equals = ""
        if not equals:
            raise GossamerError(f"--only needs key=value, such as --only {key}=0, not '{item}'.")
    return wanted


def _show_plan(grid: "Grid", directory: Path, as_json: bool) -> None:
    from gossamer.cli.show import print_json, print_table
    from gossamer.experiments.store import StoredRun

    states = [StoredRun(directory / e.id).status for e in grid.experiments]
    if as_json:
        found = zip(grid.experiments, states, strict=True)
        print_json([{"id": e.id, "status": status, "experiment": e.to_dict()} for e, status in found])
        return
    varying = _varying([e.to_dict() for e in grid.experiments])
    rows = [
        [e.id, status, *(_word(getattr(e, key)) for key in varying)]
        for e, status in zip(grid.experiments, states, strict=True)
    ]
    finished = sum(status in ("done", "diverged") for status in states)
    print_table(["run", "status", *varying], rows, figures=False)
    print(f"{len(rows)} runs in {directory}, {finished} of them finished, {len(rows) - finished} to make")


def _show(cells: "list[Cell]", outcome: "SweepOutcome", directory: Path, as_json: bool) -> None:
    import dataclasses

    from gossamer.cli.show import print_json, print_table
    from gossamer.experiments.selection import ranked

    if as_json:
        values = {**dataclasses.asdict(outcome), "directory": str(directory)}
        print_json({**values, "cells": [cell.to_dict() for cell in cells]})
        return
    varying = [k for k in _varying([c.experiment.to_dict() for c in cells]) if k not in ("method", "lr", "seed")]
    # Methods are ranked among cells that agree in the axes of the grid; what a method brings with it is no axis.
    axes = [key for key in varying if any(len(values) > 1 for values in _by_method(cells, key).values())]
    own = [key for key in varying if key not in axes]
    panels: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        panels.setdefault(_words(cell, axes), []).append(cell)
    rows = [
        [*panel, cell.label, *_words(cell, own), _accuracy(cell), _word(cell.lr), str(cell.seeds)]
        for panel, members in panels.items()
        for cell in ranked(members)
    ]
    head = [*axes, "method", *own, "accuracy", "step size", "seeds"]
    print_table(head, rows, caption="step size: best on validation data", text=len(varying) + 1)
    for warning in dict.fromkeys(w for cell in cells for w in cell.warnings):
        print(f"note: {warning}")
    print(f"runs: {directory} ({outcome.sentence})")


def _varying(experiments: list[dict[str, Any]]) -> list[str]:
    """The keys in which experiments differ."""
    return [key for key in experiments[0] if len({e[key] for e in experiments}) > 1] if experiments else []


def _by_method(cells: "list[Cell]", key: str) -> dict[str, set[Any]]:
    found: dict[str, set[Any]] = {}
    for cell in cells:
        found.setdefault(cell.label, set()).add(getattr(cell.experiment, key))
    return found


def _words(cell: "Cell", keys: list[str]) -> tuple[str, ...]:
    return tuple(_word(getattr(cell.experiment, key)) for key in keys)


def _word(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _accuracy(cell: "Cell") -> str:
    if cell.mean is None:
        return "diverged" if cell.count("diverged") else "-"
    return f"{100 * cell.mean:.1f}" + ("" if cell.std is None else f" ± {100 * cell.std:.1f}") + " %"
