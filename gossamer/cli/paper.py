"""`gossamer paper`: reproduce the paper's tables and figures."""

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App

from gossamer._common.formatting import say
from gossamer.cli.options import Only, Whole
from gossamer.errors import InputError

if TYPE_CHECKING:
    from gossamer.experiments.paper.recipes import PaperPlan, PaperRecipe, Scale
    from gossamer.experiments.paper.verdict import PaperPanel, Verdict

paper = App(name="paper", help="Reproduce the paper's tables and figures. Example: gossamer paper table2 --scale smoke")


@paper.command(name="list")
def list_(*, data_dir: Path | None = None, json: bool = False) -> None:
    """List the tables and figures: title, number of runs at each scale, and whether the data is on this machine.

    Parameters
    ----------
    data_dir
        Directory in which to look for datasets first.
    json
        Print JSON instead of a table.
    """
    from gossamer.cli.output import print_json, print_table
    from gossamer.data import status
    from gossamer.experiments.paper import recipes

    here = {s.name for s in status(data_dir) if s.folder is not None}
    entries: list[dict[str, Any]] = []
    for name in recipes.names():
        datasets = recipes.datasets(name)
        entries.append(
            {
                "item": name,
                "title": recipes.about(name).title,
                "datasets": datasets,
                "missing": [d for d in datasets if d not in here],
                "runs": {scale: recipes.count(name, scale) for scale in recipes.SCALES},
            }
        )
    if json:
        print_json(entries)
        return
    rows = []
    for e in entries:
        state = "here" if not e["missing"] else "missing" if e["missing"] == e["datasets"] else "in part"
        rows.append([e["item"], e["title"].partition(": ")[2], *map(str, e["runs"].values()), state])
    print_table(["item", "title", *recipes.SCALES, "data"], rows, figures=False)
    say("Runs at each scale. gossamer paper show ITEM prints the recipe, gossamer paper ITEM runs it.")


@paper.command
def show(item: str) -> None:
    """Print the recipe: a TOML file with the paper's setting and what the smaller scales change.

    Parameters
    ----------
    item
        A table or figure, such as table2; gossamer paper list shows all.
    """
    from gossamer.experiments.paper import recipes

    say(recipes.text(item), end="")


@paper.default
def reproduce(
    item: str,
    *,
    scale: Literal["full", "quick", "smoke"] | None = None,
    only: Only = (),
    lrs: str = "",
    seeds: str = "",
    out: Path | None = None,
    runs: Path | None = None,
    jobs: Whole = 1,
    data_dir: Path | None = None,
    existing: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Run the experiments of a table or figure and compare the measured accuracies with the published ones.

    If it was stopped, it continues when it is started again; finished runs are kept.

    Example: gossamer paper table2 --scale quick --only dataset=fashion-mnist k=4 --seeds 0,1,2

    Parameters
    ----------
    item
        A table or figure, such as table2; gossamer paper list shows all.
    scale
        full: the paper's setting; quick: few epochs, one step size, one seed; smoke: a few rounds on few nodes, with
        small stand-ins for missing data and for deep models. By default full for synthetic, quick for the rest.
    only
        Run only a part: key=value conditions on the settings, k or alpha, such as dataset=cifar-10 k=4,10.
    lrs
        Step sizes separated by commas, instead of the recipe's; every method gets its best by validation accuracy.
    seeds
        Seeds separated by commas, instead of the recipe's.
    out
        Directory of report.html and measured.json; by default out/paper/ITEM.
    runs
        Directory of the runs; by default OUT/runs. Items with the same directory share runs: Figure 1 uses Table 2's.
    jobs
        Number of runs at the same time.
    data_dir
        Directory in which to look for datasets first.
    existing
        Make no runs; report on those that exist.
    dry_run
        List the runs and their status, and do nothing.
    json
        Print JSON instead of tables.
    """
    from gossamer.experiments.paper import recipes

    recipe = recipes.about(item)
    out = out or Path("out") / "paper" / item
    if item == recipes.SYNTHETIC:
        _refuse({"--only": only, "--lrs": lrs, "--seeds": seeds, "--runs": runs, "--existing": existing})
        _synthetic(scale or "full", out, dry_run, json)
        return
    scale = scale or "quick"
    plan = _plan(item, scale, only, lrs, seeds, data_dir, need_data=not (existing or dry_run))
    runs = runs or out / "runs"
    _announce(recipe, scale, plan, runs)
    if dry_run:
        _print_plan(plan, runs, json)
        return
    failed = 0 if existing else _make(plan, out, runs, jobs, data_dir, item)
    _conclude(recipe, scale, plan, out, runs, json)
    if failed:
        sys.exit(1)


def _plan(
    item: str, scale: "Scale", only: Sequence[str], lrs: str, seeds: str, data_dir: Path | None, need_data: bool
) -> "PaperPlan":
    from gossamer.cli.options import numbers
    from gossamer.experiments.grid_filter import part_of, wanted
    from gossamer.experiments.paper import recipes

    grid = recipes.read(item, scale, lrs=numbers("lrs", lrs, float), seeds=numbers("seeds", seeds, int))
    return recipes.plan(part_of(grid, wanted(only)), scale, data_dir, need_data=need_data, keep_lr=bool(lrs))


def _announce(recipe: "PaperRecipe", scale: str, plan: "PaperPlan", runs: Path) -> None:
    """On standard error: standard output holds only the result."""
    count = len(plan.experiments)
    say(f"{recipe.title}. Scale {scale}: {count} run{'s' if count != 1 else ''} in {runs}", error=True)
    for note in plan.notes:
        say(f"note: {note}", error=True)


def _make(plan: "PaperPlan", out: Path, runs: Path, jobs: int, data_dir: Path | None, item: str) -> int:
    """Make the missing runs; returns how many failed."""
    from gossamer._common.files import check_writable
    from gossamer.cli.progress import sweep_progress
    from gossamer.experiments.sweep import run_sweep
    from gossamer.report import check_report

    check_report(out / "report.html")
    check_writable(out / "measured.json")
    with sweep_progress(item, plan.experiments, runs) as advance:
        outcome = run_sweep(plan.experiments, runs, jobs=jobs, data_dir=data_dir, on_progress=advance)
    say(outcome.sentence, error=True)
    return outcome.failed


def _conclude(recipe: "PaperRecipe", scale: "Scale", plan: "PaperPlan", out: Path, runs: Path, as_json: bool) -> None:
    """Measure, write report and measured.json, print."""
    from gossamer.cli.output import print_json
    from gossamer.experiments.paper.verdict import measure
    from gossamer.experiments.store import runs_of, write_json
    from gossamer.experiments.training import environment
    from gossamer.report import write_figures, write_report
    from gossamer.report.comparison import collect

    stored = runs_of(plan.experiments, runs)
    if not any(run.rows for run in stored):
        reasons = [str(run.outcome["reason"]) for run in stored if run.outcome and "reason" in run.outcome]
        raise InputError(reasons[0] if reasons else f"None of the runs of {recipe.name} is in {runs} yet.")
    comparison = collect(stored)
    found = measure(recipe, plan, stored, comparison.cells)
    title = f"{recipe.title} ({'; '.join(filter(None, [scale, plan.stand_ins]))})"
    # The command that makes these runs, so without --existing.
    command = shlex.join(["gossamer", *(word for word in sys.argv[1:] if word != "--existing")])
    page = out / "report.html"
    report = write_report(comparison, page, title=title, command=command, verdict=found.verdict, notes=plan.notes)
    figures = write_figures(comparison, out / "figures") if recipe.name.startswith("figure") else []
    measured = {**found.to_json(scale, [command]), "notes": plan.notes, "environment": environment()}
    write_json(out / "measured.json", measured)
    if as_json:
        print_json(measured)
        return
    _print_verdict(found.verdict, plan.notes)
    say(f"measured: {out / 'measured.json'}")
    if figures:
        say(f"figures: {out / 'figures'}{os.sep}")
    say(f"report: {report}")


def _print_verdict(verdict: "Verdict", notes: Sequence[str]) -> None:
    for panel in [*verdict.panels, *verdict.averages]:
        _print_panel(panel)
    for note in notes:
        say(f"note: {note}")
    for warning in verdict.warnings:
        say(f"warning: {warning}")
    say(verdict.sentence)


def _print_panel(panel: "PaperPanel") -> None:
    from gossamer.cli.output import print_table
    from gossamer.report.tables import beside_paper

    table = beside_paper(panel)
    say(panel.title)
    print_table(table.head, table.rows)
    say(f"{panel.sentence}\n")


def _print_plan(plan: "PaperPlan", runs: Path, as_json: bool) -> None:
    from gossamer.cli.output import print_json, print_table
    from gossamer.experiments.store import StoredRun

    found = [(e, StoredRun(runs / e.id).status_in_plan) for e in plan.experiments]
    if as_json:
        entries = [{"id": e.id, "status": status, "experiment": e.to_dict()} for e, status in found]
        print_json({"notes": plan.notes, "runs": entries})
        return
    rows = [
        [e.id, e.label, e.dataset, e.model_name, e.partition, e.topology, f"{e.lr:g}", str(e.seed), status]
        for e, status in found
    ]
    head = ["run", "method", "dataset", "model", "partition", "graph", "step size", "seed", "status"]
    print_table(head, rows, figures=False)


def _synthetic(scale: "Scale", out: Path, dry_run: bool, as_json: bool) -> None:
    """The same code as `gossamer synthetic`, with the recipe's settings."""
    from gossamer.cli.output import print_json
    from gossamer.cli.synthetic import synthetic
    from gossamer.experiments.paper import recipes

    values: dict[str, Any] = recipes.settings(recipes.SYNTHETIC, scale)
    settings = {key: value for key, value in values.items() if key not in ("title", "description")}
    settings["zeta2"] = ",".join(f"{z:g}" for z in settings["zeta2"])
    if dry_run:
        options = " ".join(f"--{key} {value}" for key, value in settings.items())
        command = f"gossamer synthetic {options} --out {shlex.quote(str(out))}"
        print_json({"command": command}) if as_json else say(command)
        return
    measured = out / "measured.json"
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        synthetic(**settings, out=out, json=measured)
    if as_json:
        say(measured.read_text(encoding="utf-8"), end="")
    else:
        say(f"measured: {measured}")


def _refuse(options: dict[str, Any]) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise InputError(
            f"The synthetic experiment trains nothing, so it has no {given[0]}; use the options of gossamer synthetic."
        )
