"""`gossamer compare`: several methods on the same data, graph and seeds."""

import shlex
import sys
from pathlib import Path

from gossamer._common.formatting import say
from gossamer.cli.options import GivenToAll, Load, SharedSettings, Whole, numbers, specs
from gossamer.errors import InputError

PAPER_METHODS = "dsgd,dsgdm,gradient-tracking,qg-dsgdm,decentlam,momentum-tracking"


def compare(
    file: Path | None = None,
    *,
    methods: str = PAPER_METHODS,
    seeds: str = "",
    lrs: str = "",
    settings: SharedSettings = GivenToAll(),  # noqa: B008 - immutable
    out: Path = Path("out/compare"),
    data_dir: Path | None = None,
    workers: Whole | None = None,
    load: Load = (),
    json: bool = False,
) -> None:
    """Compare methods on the same data, graph and seeds; prints a ranking and writes a report.

    A comparison that was stopped continues, and your own methods are trained again if you have edited them. All methods
    must be able to use the graph; with `gossamer sweep` each can have its own.

    Example: gossamer compare --methods dsgdm,momentum-tracking --partition k-class:k=2 --lr 0.1 --seeds 0,1,2

    Parameters
    ----------
    file
        TOML file with any of the settings below; options on the command line override it.
    methods
        Methods separated by commas, with parameters as in momentum-tracking:beta=0.5,init=zero.
    seeds
        Seeds separated by commas, such as 0,1,2; the table shows the mean ± standard deviation over them.
    lrs
        Step sizes separated by commas; every method gets the one that is best on validation data.
    out
        Directory of the runs and of report.html.
    data_dir
        Directory in which to look for datasets first.
    workers
        Threads that share the nodes; one per core by default. The result is the same for any number.
    load
        Python file that defines your own methods; may be repeated.
    json
        Print JSON instead of a table.
    """
    from gossamer.cli.output import print_json, print_ranking
    from gossamer.cli.progress import finished_lines, live_table
    from gossamer.experiments.grid import Grid, read_grid
    from gossamer.experiments.selection import ranked
    from gossamer.experiments.store import runs_of
    from gossamer.experiments.sweep import run_sweep
    from gossamer.experiments.user_files import load_python
    from gossamer.report import check_report, write_report
    from gossamer.report.comparison import collect

    if "method" in settings.given:
        raise InputError("compare takes several methods: write --methods, with commas, instead of --method.")
    for one, several in (("seed", seeds), ("lr", lrs)):
        if several and one in settings.given:
            raise InputError(f"--{one} and --{one}s mean the same; give only one of them.")
    load_python(load)
    axes = {**settings.flags, "method": specs(methods)}
    if seeds:
        axes["seed"] = numbers("seeds", seeds, int)
    if lrs:
        axes["lr"] = numbers("lrs", lrs)
    grid = read_grid(file, **axes) if file else Grid.from_dict(axes)
    page = out / "report.html"
    check_report(page)
    place = out / "runs"
    with live_table(grid.experiments) as watch:
        outcome = run_sweep(
            grid.experiments,
            place,
            data_dir=data_dir,
            workers=workers,
            load=load,
            on_row=watch,
            on_progress=finished_lines(grid.experiments, place),
        )
    runs = runs_of(grid.experiments, place)
    if not any(run.rows for run in runs):
        raise InputError(next(iter(outcome.reasons.values()), f"None of the runs in {place} can be read."))
    comparison = collect(runs)
    write_report(comparison, page, command=shlex.join(["gossamer", *sys.argv[1:]]))
    if json:
        print_json({"ranking": [c.to_dict() for c in ranked(comparison.cells)], "report": str(page)})
    else:
        print_ranking(comparison.cells)
        if grid.description:
            say(grid.description)
        if outcome.skipped:
            say(f"runs: {place} ({outcome.skipped} of {len(grid.experiments)} were finished before)")
        say(f"report: {page}")
    if outcome.failed:
        raise SystemExit(1)
