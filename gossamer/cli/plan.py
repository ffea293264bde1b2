"""`gossamer plan`: what the messages of every method cost on a slow link."""

from typing import Annotated

from cyclopts import Parameter

from gossamer._common.formatting import duration, say, size
from gossamer.cli.options import Load, Whole


def plan(
    *,
    parameters: str = "1M",
    sites: Whole = 8,
    link: str = "100Mbit/s",
    step: str = "0.2s",
    method: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    every: Whole = 1,
    topology: str = "ring",
    weights: str = "metropolis",
    load: Load = (),
    json: bool = False,
) -> None:
    """Show what the messages of every method cost: bytes, seconds on the wire, and how long the sites wait for them.

    Nothing is sent or trained. A method that overlaps sends during the next steps, so that only what they do not hide
    is waited for. How long compressing and unpacking takes is measured on this machine.

    Example: gossamer plan --parameters 25.6M --sites 8 --link 100Mbit/s --step 0.4s --method
    motef:compress=quantize:bits=4 --every 10

    Parameters
    ----------
    parameters
        Number of parameters of the model, such as 25.6M.
    sites
        Number of sites.
    link
        Rate of a site's link in each direction, such as 100Mbit/s.
    step
        Time of a training step without messages, such as 0.4s.
    method
        Method to show before all others; may be repeated.
    every
        Steps for each exchange: K-GT's and LED's every, for the other methods that of gossamer.optim.Outer.
    topology
        The graph, with parameters as in random-regular:degree=4.
    weights
        Mixing weights: metropolis, uniform, lazy or fastest. Messages are alike, but D^2, LED and EDM need lazy ones on
        an even ring.
    load
        Python file that defines your own methods; may be repeated.
    json
        Print JSON instead of a table.
    """
    from gossamer import methods
    from gossamer import topology as graphs
    from gossamer.cli.output import print_json, print_table
    from gossamer.errors import InputError
    from gossamer.experiments import traffic
    from gossamer.experiments.user_files import load_python

    load_python(load)
    graph = graphs.get(topology, sites, weights=weights)
    count = round(traffic.amount(parameters, "The number of parameters", traffic.COUNTS, "25.6M"))
    rate = traffic.amount(link, "The rate of a link", traffic.RATES, "100Mbit/s")
    seconds = traffic.amount(step, "The time of a step", traffic.TIMES, "0.4s")
    planned, refused = {}, []
    for spec in dict.fromkeys([*method, *methods.BUILT_IN, *methods.names()]):
        chosen = methods.get(spec)
        try:
            chosen.check(graph)
        except InputError:
            if spec in method:
                raise
            refused.append(spec)
        else:
            planned[spec] = traffic.plan(chosen, graph, parameters=count, link=rate, step=seconds, every=every)
    if json:
        fields = ("every", "bytes", "wire", "hidden", "waiting", "coding", "step")
        print_json({spec: {name: getattr(t, name) for name in fields} for spec, t in planned.items()})
        return
    rows = [
        [spec, str(t.every), size(t.bytes), *(duration(s) for s in (t.wire, t.hidden, t.waiting, t.coding, t.step))]
        for spec, t in planned.items()
    ]
    head = ["method", "steps per exchange", "sent per exchange", "on the wire", "hidden", "waited for", "compressing"]
    head += ["a step takes"]
    print_table(
        head, rows, f"{count:,} parameters on the {graph.name} of {sites} sites, {link} each way, {step} per step"
    )
    if refused:
        say(f"not on this graph: {', '.join(refused)} (gossamer show topology {topology} says why)")
