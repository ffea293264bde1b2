"""Try a method against the contract and against what it declares, in one line."""

import copy
import inspect
from dataclasses import dataclass
from typing import Literal

from gossamer import topology as graphs
from gossamer.errors import GossamerError, InputError, describe
from gossamer.methods import Method, resolve
from gossamer.methods.contract import refuse_lost_fields
from gossamer.network import Ready
from gossamer.testing.compressed_messages import COMPRESSION
from gossamer.testing.properties import CONTRACT, PROMISES, Property
from gossamer.testing.trial import Trial
from gossamer.topology import Topology


@dataclass(frozen=True)
class PropertyResult:
    """One property of a method, and whether it holds.

    >>> PropertyResult("exact", "holds")
    PropertyResult(property='exact', outcome='holds', sentence='')
    """

    property: str
    outcome: Literal["holds", "fails", "not declared", "not tried"]
    sentence: str = ""


@dataclass(frozen=True)
class ConformanceReport:
    """The outcome of `check_method`.

    >>> report = check_method("dsgd")
    >>> report.method, report.failures
    ('DSGD', ())
    """

    method: str
    graphs: tuple[str, ...]
    """The graphs it was tried on: those of the kit that its needs admit."""
    rows: tuple[PropertyResult, ...]
    notes: tuple[str, ...] = ()
    """What is no failure but worth knowing."""

    @property
    def failures(self) -> tuple[PropertyResult, ...]:
        """The properties that do not hold."""
        return tuple(r for r in self.rows if r.outcome == "fails")

    @property
    def undeclared(self) -> tuple[str, ...]:
        """The promises that the method does not make, and which were therefore not checked."""
        return tuple(r.property for r in self.rows if r.outcome == "not declared")

    def __str__(self) -> str:
        width = max(len(r.property) for r in self.rows)
        lines = [f"{self.method} on {', '.join(self.graphs)}"]
        lines += [f"  {r.property:<{width}}  {r.outcome}{': ' if r.sentence else ''}{r.sentence}" for r in self.rows]
        return "\n".join([*lines, *self.notes])


class ConformanceError(AssertionError):
    """A method does not do what the contract asks or what it declares. `report` has the details.

    >>> from gossamer import DSGD, Facts
    >>> class Boaster(DSGD):
    ...     facts = Facts(title="Boaster", sends=2)
    >>> check_method(Boaster)
    Traceback (most recent call last):
    ...
    gossamer.testing.kit.ConformanceError: Boaster fails ...
    """

    def __init__(self, report: ConformanceReport) -> None:
        self.report = report
        failed = "; ".join(f"'{r.property}': {r.sentence}" for r in report.failures)
        super().__init__(f"{report.method} fails {failed}.\n\n{report}")


def check_method(method: type[Method] | Method | str, seed: int = 0) -> ConformanceReport:
    """Check a method (a class, an instance or a name) on every graph of the kit that it accepts.

    Every method must fulfil the contract: run in place, repeat to the bit, run on one node's vectors as on the stack of
    all, resume from a saved state, send what it declares, go on when nodes leave and return (a method that is exact:
    to the optimum of those that are there). One whose messages are compressed must do so to the bit, under every
    compressor. Beyond that, each promise its `facts` make is checked; those it does not make are listed in the report.
    Raises `ConformanceError` with a sentence for each property that fails; where a step raises, that is the one
    sentence, and nothing else is tried. A class that is not finished (annotated fields without @dataclass, no facts) is
    refused with a `GossamerError`.

    >>> report = check_method("dsgd")
    >>> report.undeclared
    ('exact', 'exact_on_schedules', 'tracks', 'overlaps')
    """
    method = resolve(method)
    _refuse_unfinished(type(method))
    trials = _trials(method, seed)
    static = [s for s in trials if s.topology.is_static and s.topology.is_symmetric]
    changing = [s for s in trials if not s.topology.is_static]
    rows: list[PropertyResult] = []
    raised = False
    compression = COMPRESSION if method.facts.compresses else {}
    for name, check in {**CONTRACT, **compression, **PROMISES}.items():
        if name in PROMISES and not getattr(method.facts, name):
            rows.append(PropertyResult(name, "not declared"))
        elif raised:
            rows.append(PropertyResult(name, "not tried"))
        else:
            kinds = {"exact": static, "exact_on_schedules": changing, "exact after changes": static[-1:] or trials}
            where = kinds.get(name, trials)
            row, error = _try(name, check, method, where)
            rows.append(row)
            raised = name == "runs" and error is not None
    report = ConformanceReport(method.facts.title, tuple(_named(s) for s in trials), tuple(rows), _notes(type(method)))
    if report.failures:
        raise ConformanceError(report)
    return report


def kit_graphs() -> list[Topology]:
    """The graphs a method is tried on: one node, two, cycles, trees, an irregular graph, lazy weights, schedules.

    >>> [graph.n for graph in kit_graphs()][:4]
    [1, 2, 5, 6]
    """
    return [
        graphs.complete(1),
        graphs.chain(2),
        graphs.ring(5),
        graphs.ring(6, weights="lazy"),
        graphs.star(5),
        graphs.chain(6),
        graphs.erdos_renyi(7, probability=0.5, seed=1),
        graphs.one_peer_exponential(4),
        graphs.random_matchings(6, period=10, seed=1),
    ]


def _trials(method: Method, seed: int) -> list[Trial]:
    accepted = []
    for topology in kit_graphs():
        try:
            method.check(topology)
        except GossamerError:
            continue
        accepted.append(Trial(topology, seed=seed))
    return accepted


def _try(name: str, check: Property, method: Method, trials: list[Trial]) -> tuple[PropertyResult, Exception | None]:
    """What became of a property, and what the method raised while it was tried."""
    if not trials:
        return PropertyResult(
            name, "fails", "it is declared, but the method's needs admit no graph on which it could hold"
        ), None
    for trial in trials:
        error = None
        try:
            sentence = check(copy.deepcopy(method), trial)
        except Exception as problem:
            error, sentence = problem, _in_words(problem, method)
        if sentence:
            return PropertyResult(name, "fails", f"on {_named(trial)}, {sentence}"), error
    return PropertyResult(name, "holds"), None


def _named(trial: Trial) -> str:
    return f"{trial.topology.name} of {trial.topology.n}"


def _notes(method: type[Method]) -> tuple[str, ...]:
    if "name" in vars(method):
        return ()
    return (
        f"{method.__qualname__} has no name of its own, so the command line cannot find it; give the class a line "
        f"such as name = '{method.__name__.lower()}'.",
    )


def _refuse_unfinished(method: type[Method]) -> None:
    """Raise an `InputError` for a class without facts, or with annotated fields that are no dataclass fields."""
    if not hasattr(method, "facts"):
        raise InputError(
            f"{method.__qualname__} declares no facts; give the class a line such as "
            f"facts = Facts(title='{method.__qualname__}', sends=1)."
        )
    refuse_lost_fields(method)


def _in_words(error: Exception, method: Method) -> str:
    """The error with the last line in the file of `step` that led to it, and the remedy where the cause is known."""
    _end_in_own_file(error, method)
    hint = ""
    if isinstance(error, TypeError | AttributeError) and Ready.__name__ in str(error):
        hint = "; mix and exchange give a message that may be under way, and its .wait() gives the tuple of vectors"
    return describe(error) + hint


def _end_in_own_file(error: Exception, method: Method) -> None:
    """Cut the traceback below the method's own file: what the network or torch did there is not its author's."""
    code = getattr(inspect.unwrap(type(method).step), "__code__", None)
    own, entry = None, error.__traceback__
    while code is not None and entry is not None:
        if entry.tb_frame.f_code.co_filename == code.co_filename:
            own = entry
        entry = entry.tb_next
    if own is not None:
        own.tb_next = None
