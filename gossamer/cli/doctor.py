"""`gossamer doctor`: what is installed, and whether the methods and the compiled kernels compute what they should."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer._common.formatting import NONE, say

if TYPE_CHECKING:
    from gossamer.testing.self_check import SelfCheck

EXTRAS = {
    "fast": ("numba",),
    "report": ("matplotlib", "plotly"),
    "data": ("pandas", "pyarrow"),
    "datasets": ("datasets",),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "slurm": ("submitit",),
    "links": ("cryptography",),
    "elastic": ("torchft",),
    "metrics": ("prometheus_client",),
    "privacy": ("opacus",),
    "lightning": ("lightning",),
    "transformers": ("transformers", "accelerate"),
}
"""The modules of every extra that is in `all`."""


def doctor(*, data_dir: Path | None = None, network: bool = False, json: bool = False) -> None:
    """Show versions, devices and datasets, and check the compiled kernels and every method.

    Kernels are compared with torch, methods with the reference implementation. On its first use this compiles the
    kernels, which takes some seconds. Exits with code 1 if a method fails its check.

    Example: gossamer doctor --data-dir ~/datasets

    Parameters
    ----------
    data_dir
        Directory in which to look for datasets first.
    network
        Show instead what listens on this machine and where, and warn of ports of torch that strangers may reach.
    json
        Print JSON instead of tables.
    """
    if network:
        _network(json)
        return
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
    kernels = _kernels()
    checks = self_check()
    if json:
        print_json(
            {
                "environment": facts,
                "devices": devices,
                "missing": {extra: missing for extra, missing in extras.items() if missing},
                "kernels": kernels,
                "data": {d.name: d.folder and str(d.folder) for d in data},
                "methods": {c.method: {"topology": c.topology, "gap": c.gap, "passed": c.passed} for c in checks},
            }
        )
    else:
        known = {key: value for key, value in facts.items() if value is not None}  # no commit outside a clone
        print_table(["", ""], [[k, str(v)] for k, v in {**known, "devices": ", ".join(devices)}.items()], figures=False)
        missing = [f"pip install 'gossamer[{extra}]' ({', '.join(m)})" for extra, m in extras.items() if m]
        say(f"optional parts missing: {'; '.join(missing) or 'none'}\n")
        say(f"{_in_words(kernels)}\n")
        where = [[d.name, str(d.folder) if d.folder else f"missing: gossamer data get {d.name}"] for d in data]
        print_table(["dataset", "where"], where, figures=False)
        say()
        rows = [[c.method, c.topology, f"{c.gap:.0e}", "ok" if c.passed else "WRONG"] for c in checks]
        print_table(["method", "graph", "gap to the reference", ""], rows)
        say(f"\n{_verdict(checks)}")
    if not all(c.passed for c in checks):
        sys.exit(1)


def _network(as_json: bool) -> None:
    import os

    from gossamer.cli.output import print_json, print_table
    from gossamer.links.listeners import VARIABLES, can_look, has_rules, listeners, warnings

    environment = {name: os.environ.get(name) for name in VARIABLES}
    found = listeners() if can_look() else []
    warned = warnings(found) if can_look() else []
    rules = has_rules()
    if as_json:
        print_json({"environment": environment, "listeners": found, "rules": rules, "warnings": warned})
        return
    print_table(["variable", ""], [[name, value or "not set"] for name, value in environment.items()], figures=False)
    say()
    if not can_look():
        say("What listens is read from /proc, which this system does not have; try: lsof -nP -iTCP -sTCP:LISTEN")
        return
    rows = [[str(f.port), f.address, f.interface or "all", "yes" if f.torch else "", f.process or NONE] for f in found]
    print_table(["port", "address", "interface", "torch", "process"], rows, figures=False)
    loaded = {True: "loaded", False: "not loaded", None: "known to root only"}[rules]
    say(f"\nfirewall rules of gossamer links: {loaded}")
    for sentence in warned:
        say(f"warning: {sentence}")


def _kernels() -> dict[str, str | None]:
    """How the simulator computes gradients here, tried on a small model.

    The form, why it is not the compiled one, and where compiled code is kept.
    """
    import logging
    from importlib.util import find_spec
    from logging.handlers import BufferingHandler

    import gossamer as gs

    warnings, log = BufferingHandler(100), logging.getLogger("gossamer")
    warnings.setLevel(logging.WARNING)
    log.addHandler(warnings)
    try:
        nodes = gs.data.load("digits").split(gs.partition.iid(nodes=2))
        run = gs.simulate(gs.models.SmallCNN, nodes, "dsgd", "ring", lr=0.01, rounds=1)
    finally:
        log.removeHandler(warnings)
    form = run.simulation.gradients.form
    if find_spec("numba") is None:
        return {"form": form, "why_not_compiled": "numba is not installed: pip install 'gossamer[fast]'", "cache": None}

    import numba

    from gossamer.engine.gradients.compiled.compilation import cache_directory

    reason = None
    if numba.config.DISABLE_JIT:
        reason = "NUMBA_DISABLE_JIT is set, so numba compiles nothing"
    elif form == "autograd":
        said = " ".join(record.getMessage() for record in warnings.buffer)
        reason = said or "this processor has no fused multiply-add, which they need"
    return {"form": form, "why_not_compiled": reason, "cache": str(cache_directory())}


def _in_words(kernels: dict[str, str | None]) -> str:
    if kernels["why_not_compiled"]:
        return (
            "compiled kernels: not used; all models run through autograd, small ones about three times as slowly.\n"
            f"Reason: {kernels['why_not_compiled']}"
        )
    return (
        f"compiled kernels: ready, and they agree with torch ({kernels['form']}).\n"
        f"The compiled code is kept in {kernels['cache']}"
    )


def _verdict(checks: "list[SelfCheck]") -> str:
    wrong = [c.method for c in checks if not c.passed]
    if not wrong:
        return f"All {len(checks)} methods agree with the reference implementation."
    verb = "disagrees" if len(wrong) == 1 else "disagree"
    return (
        f"{', '.join(wrong)} {verb} with the reference implementation ({len(wrong)} of {len(checks)} methods): do not "
        "trust what they compute on this machine."
    )
