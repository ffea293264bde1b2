"""`gossamer doctor`: what is installed, and whether every method computes what it should."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossamer.testing.self_check import SelfCheck

EXTRAS = {
    "report": ("matplotlib", "plotly"),
    "data": ("pandas", "pyarrow"),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "slurm": ("submitit",),
}


def doctor(*, data_dir: Path | None = None, json: bool = False) -> None:
    """Show versions, devices and datasets, and check every method against the reference implementation.

    Exits with code 1 if a method fails its check.

    Example: gossamer doctor --data-dir ~/datasets

    Parameters
    ----------
    data_dir
        Directory in which to look for datasets first.
    json
        Print JSON instead of tables.
    """
    from importlib.util import find_spec

    import torch

    from gossamer.cli.output import print_json, print_table
    from gossamer.data import status
    from gossamer.experiments.training import environment
    from gossamer.testing.self_check import self_check

    facts = environment()
    devices = ["cpu"] + ["cuda"] * torch.cuda.is_available() + ["mps"] * torch.backends.mps.is_available()
    extras = {extra: [m for m in modules if find_spec(m) is None] for extra, modules in EXTRAS.items()}
    data = status(data_dir)
    checks = self_check()
    if json:
        print_json(
            {
                "environment": facts,
                "devices": devices,
                "missing": {extra: missing for extra, missing in extras.items() if missing},
                "data": {d.name: d.folder and str(d.folder) for d in data},
                "methods": {c.method: {"topology": c.topology, "gap": c.gap, "passed": c.passed} for c in checks},
            }
        )
    else:
        print_table(["", ""], [[k, str(v)] for k, v in {**facts, "devices": ", ".join(devices)}.items()], figures=False)
        missing = [f"pip install 'gossamer[{extra}]' ({', '.join(m)})" for extra, m in extras.items() if m]
        print(f"optional parts missing: {'; '.join(missing) or 'none'}\n")
        where = [[d.name, str(d.folder) if d.folder else f"missing: gossamer data get {d.name}"] for d in data]
        print_table(["dataset", "where"], where, figures=False)
        print()
        rows = [[c.method, c.topology, f"{c.gap:.0e}", "ok" if c.passed else "WRONG"] for c in checks]
        print_table(["method", "graph", "gap to the reference", ""], rows)
        print(f"\n{_verdict(checks)}")
    if not all(c.passed for c in checks):
        sys.exit(1)


def _verdict(checks: "list[SelfCheck]") -> str:
    wrong = [c.method for c in checks if not c.passed]
    if not wrong:
        return f"All {len(checks)} methods agree with the reference implementation."
    verb = "disagrees" if len(wrong) == 1 else "disagree"
    return (
        f"{', '.join(wrong)} {verb} with the reference implementation ({len(wrong)} of {len(checks)} methods): do not "
        "trust what they compute on this machine."
    )
