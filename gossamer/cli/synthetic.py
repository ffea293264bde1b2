"""`gossamer synthetic`: the paper's synthetic experiment."""

import shlex
import sys
from pathlib import Path

from gossamer._common.formatting import progress_bar, say
from gossamer.cli.options import Whole, numbers, specs


def synthetic(
    *,
    nodes: Whole = 25,
    dim: Whole = 50,
    lr: float = 1e-4,
    beta: float = 0.9,
    sigma2: float = 1.0,
    zeta2: str = "0,25,50",
    topology: str = "ring",
    weights: str = "metropolis",
    rounds: Whole = 20_000,
    seed: Whole = 0,
    methods: str = "",
    draws: Whole = 1,
    out: Path = Path("out/synthetic"),
    json: Path | None = None,
) -> None:
    """Reproduce the paper's synthetic figures: how far heterogeneity keeps each method from the optimum.

    Prints the mean of |grad f(xbar)|^2 over the last quarter of the rounds; writes figures (PNG, SVG) and a report.

    Example: gossamer synthetic --methods dsgdm,momentum-tracking --zeta2 0,50 --json results.json

    Parameters
    ----------
    nodes
        Number of nodes N.
    dim
        Dimension d of x.
    lr
        Step size eta, the same for all methods.
    beta
        Momentum coefficient of the methods that have one.
    sigma2
        Variance of the gradient noise.
    zeta2
        Heterogeneity of the b_i, one or more values separated by commas.
    topology
        Graph: ring, hypercube, random-regular:degree=4, one-peer-exponential, file:graph.txt, matrix:weights.csv, ...
    weights
        Mixing weights: metropolis, uniform, lazy or fastest.
    rounds
        Rounds per run.
    seed
        Seed of the b_i, of the noise and of random graphs.
    methods
        Methods separated by commas; by default all but those for slow links. Methods that cannot use the graph run on
        one that they can.
    draws
        Independent draws of the b_i to average over.
    out
        Directory of the figures and of report.html.
    json
        File for the curves and the means, for every method and zeta^2.
    """
    import torch

    from gossamer.cli.output import print_table
    from gossamer.experiments.synthetic import SyntheticConfig, run_synthetic
    from gossamer.report.synthetic import check_report, explain, levels, write_json, write_report

    config = SyntheticConfig(
        nodes=nodes,
        dim=dim,
        lr=lr,
        beta=beta,
        sigma2=sigma2,
        zeta2=tuple(numbers("zeta2", zeta2)),
        topology=topology,
        weights=weights,
        rounds=rounds,
        seed=seed,
        methods=tuple(specs(methods)),
        draws=draws,
    )
    check_report(out, json)
    # The vectors are small, so more threads would be slower; and with one thread the bits are reproducible.
    torch.set_num_threads(1)
    with progress_bar("synthetic") as advance:
        result = run_synthetic(config, on_progress=advance)
    if json is not None:
        write_json(result, json)
    page = write_report(result, out, command=shlex.join(["gossamer", *sys.argv[1:]]))
    table = levels(result)
    print_table(table.head, table.rows, caption=explain(result))
    for note in result.notes:
        say(f"note: {note}")
    say(f"figures: {out / 'initial_phase.png'}, {out / 'long_run.png'} (and .svg)")
    say(f"report: {page}")
