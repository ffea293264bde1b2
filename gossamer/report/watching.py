"""What is going on: runs and sweeps on disk, and real nodes that serve their figures, looked at again and again.

A `Watch` is asked for a `Snapshot` now and then. `gossamer watch` shows it on a terminal, and `page` as HTML. A run is
as far as its last evaluation. A node is asked over HTTP; one that does not answer keeps what it said last.
"""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from gossamer._common.formatting import NONE, duration, size
from gossamer.errors import GossamerError, InputError
from gossamer.experiments.locks import holder
from gossamer.experiments.store import PLAN, StoredRun, planned, seconds_so_far
from gossamer.report.pages import render
from gossamer.report.tables import Table

PATIENCE = 2.0
"""Seconds within which a node answers, unless it is stopped or gone."""
SHORT = 1.0
"""A wait of fewer seconds is what rounds are made of, and is not shown."""
FRESH = 600.0
"""Seconds for which a run counts as running whose process is not one of this machine, after it wrote a file."""
MOST_RUNS = 12
"""The most runs of a sweep that have a line of their own."""
EVERYONE = "all"
"""Whom a node says it waits for where all are needed."""


@dataclass(frozen=True)
class Node:
    """What a node said last, and how many seconds ago if it does not answer (0 if it never did)."""

    address: str
    name: str = ""
    round: int | None = None
    waits_for: str = ""
    waited: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    sent: float = 0.0
    not_finite: int = 0
    changes: int | None = None
    silent: float | None = None

    @property
    def called(self) -> str:
        """Its name, or its address while that is all that is known."""
        return self.name or self.address


@dataclass(frozen=True)
class WatchedRun:
    """A run on disk: how far it is, what it has reached, and how many seconds it still needs."""

    title: str
    status: str
    part: float
    reached: str
    left: float | None
    note: str = ""
    whole: float | None = None
    """Seconds that it took, or will take."""


@dataclass(frozen=True)
class Sweep:
    """The runs of a directory: how many there are and how they ended, and those that are being made."""

    place: str
    total: int
    ended: dict[str, int]
    part: float
    left: float | None
    running: list[WatchedRun]


@dataclass(frozen=True)
class Snapshot:
    """Everything at one moment."""

    runs: list[WatchedRun]
    sweeps: list[Sweep]
    nodes: list[Node]

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to wait for: nodes are followed until the watch is ended."""
        going = [r for r in self.runs if r.status in ("running", "stopped")]
        return not (self.nodes or going or [s for s in self.sweeps if sum(s.ended.values()) < s.total])

    def tables(self) -> list[tuple[str, Table]]:
        """What there is, as tables with titles."""
        made = []
        for sweep in self.sweeps:
            rows = [_run_row(run) for run in sweep.running[:MOST_RUNS]]
            made.append((_sweep_title(sweep), Table(_RUN_HEAD, rows)))
        if self.runs:
            made.append(("runs", Table(_RUN_HEAD, [_run_row(run) for run in self.runs])))
        if self.nodes:
            names = list(dict.fromkeys(name for node in self.nodes for name in node.figures))[:2]
            changes = [node.changes is not None for node in self.nodes]
            head = ["node", "round", "waits for", *names, "sent", "not finite", *(["changes"] if any(changes) else [])]
            rows = [_node_row(node, names, any(changes)) for node in self.nodes]
            made.append(("nodes", Table(head, rows)))
        return made

    def sentences(self) -> list[str]:
        """Who waits for whom, who does not answer, and what went wrong."""
        said = [f"{run.title}: {run.note}" for run in self.runs if run.note]
        said += [f"{run.title}: {run.note}" for sweep in self.sweeps for run in sweep.running if run.note]
        return said + _waits(self.nodes)


_RUN_HEAD = ["run", "status", "made", "reached", "left"]


def _run_row(run: WatchedRun) -> list[str]:
    left = duration(round(run.left)) if run.left is not None else NONE
    return [run.title, run.status, f"{100 * run.part:.0f} %", run.reached, left]


def _node_row(node: Node, names: Sequence[str], changes: bool) -> list[str]:
    wait = f"{node.waits_for}, {duration(round(node.waited))}" if node.waits_for else NONE
    if node.silent is not None:
        wait = "no answer" if node.silent == 0 else f"no answer, {duration(round(node.silent))}"
    told = [f"{node.figures[name]:.4g}" if name in node.figures else NONE for name in names]
    unknown = node.round is None
    row = [node.called, NONE if unknown else str(node.round), wait, *told]
    row += [NONE, NONE] if unknown else [size(node.sent), str(node.not_finite)]
    return [*row, NONE if node.changes is None else str(node.changes)] if changes else row


def _sweep_title(sweep: Sweep) -> str:
    ended = [f"{count} {status}" for status, count in sweep.ended.items() if count]
    more = len(sweep.running) - MOST_RUNS
    parts = [
        f"{sweep.place}: {100 * sweep.part:.0f} % of {sweep.total} runs",
        *ended,
        f"{len(sweep.running)} being made" + (f" ({MOST_RUNS} shown)" if more > 0 else ""),
    ]
    left = f", about {duration(round(sweep.left))} left" if sweep.left is not None and sweep.part < 1 else ""
    return ", ".join(parts) + left


def _waits(nodes: Sequence[Node]) -> list[str]:
    """A sentence for every node that others wait for, with the cause where it is known."""
    by_name = {node.name: node for node in nodes if node.name}
    waiting: dict[str, list[Node]] = {}
    for node in nodes:
        if node.waits_for and node.silent is None:
            waiting.setdefault(node.waits_for, []).append(node)
    said = []
    # The root of a chain first: it is the one that does not wait itself.
    for peer, behind in sorted(
        waiting.items(), key=lambda found: found[0] in by_name and bool(by_name[found[0]].waits_for)
    ):
        longest = max(node.waited for node in behind)
        began = time.strftime("%H:%M:%S", time.localtime(time.time() - longest))
        whom = "all others" if peer == EVERYONE else peer
        names = _listed([node.called for node in behind])
        sentence = (
            f"{names} wait{'s' if len(behind) == 1 else ''} for {whom} since {began} ({duration(round(longest))})"
        )
        them = by_name.get(peer)
        if peer == EVERYONE:
            pass
        elif them is None and len(by_name) < len(nodes):
            sentence += f", which does not answer: look at {_listed([n.address for n in nodes if not n.name])}"
        elif them is not None and them.silent is not None:
            sentence += ", which does not answer: its process is stopped or gone, or its machine cannot be reached"
        elif them is not None and them.waits_for in {node.name for node in behind}:
            sentence += ", which waits for it in turn: look at the network between the two"
        elif them is not None and not them.waits_for:
            sentence += f", which is busy in round {them.round}"
        said.append(sentence + ".")
    waited_for = set(waiting)
    for node in nodes:
        if node.silent is not None and node.name not in waited_for and (node.name or not waited_for):
            said.append(f"{node.called} does not answer.")
    return said


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


class Watch:
    """Looks at the same runs, sweeps and nodes as often as it is asked to."""

    def __init__(self, what: Sequence[str]) -> None:
        if not what:
            raise InputError(
                "There is nothing to watch; give directories of runs, or addresses of nodes such as 127.0.0.1:9100."
            )
        self.places = [Path(name) for name in what if Path(name).is_dir()]
        self.addresses = [a for name in what if not Path(name).is_dir() for a in addresses(name)]
        self._said: dict[str, tuple[Node, float]] = {}
        if self.addresses:
            _parser()
        # Proxies are for the world outside.
        self._opener = build_opener(ProxyHandler({}))

    def look(self) -> Snapshot:
        """What is going on at this moment."""
        runs = [_run(StoredRun(place)) for place in self.places if (place / "run.json").exists()]
        sweeps = [_sweep(place) for place in self.places if not (place / "run.json").exists()]
        with ThreadPoolExecutor(max_workers=max(1, len(self.addresses))) as pool:
            nodes = list(pool.map(self._ask, self.addresses))
        return Snapshot(runs, sweeps, nodes)

    def _ask(self, address: str) -> Node:
        try:
            with self._opener.open(Request(f"http://{address}/metrics"), timeout=PATIENCE) as answer:
                node = _node(address, answer.read().decode("utf-8", "replace"))
        except (URLError, HTTPException, OSError, ValueError):
            before, when = self._said.get(address, (Node(address), None))
            silent = 0.0 if when is None else time.monotonic() - when
            return replace(before, waits_for="", silent=silent)
        self._said[address] = (node, time.monotonic())
        return node


def addresses(told: str) -> list[str]:
    """HOST:PORT, http://HOST:PORT, or HOST:FIRST-LAST for the processes of one machine.

    >>> addresses("http://10.0.0.1:9100/metrics"), addresses("localhost:9100-9102")
    (['10.0.0.1:9100'], ['localhost:9100', 'localhost:9101', 'localhost:9102'])
    """
    place = urlsplit(told).netloc if "://" in told else told
    host, _, ports = place.rpartition(":")
    first, _, last = ports.partition("-")
    numbers = [first, last or first]
    if not host or "/" in host or not all(n.isascii() and n.isdigit() and int(n) < 65536 for n in numbers):
        raise InputError(
            f"'{told}' is neither a directory nor an address; give a directory of runs, or HOST:PORT of a node."
        )
    return [f"{host}:{port}" for port in range(int(numbers[0]), int(numbers[1]) + 1)]


def _parser() -> Any:
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        raise InputError(
            "Watching nodes needs prometheus-client, which is not installed; run: pip install 'gossamer[metrics]'."
        ) from None
    return text_string_to_metric_families


def _node(address: str, text: str) -> Node:
    """What a node's figures say."""
    found: dict[str, float] = {}
    figures: dict[str, float] = {}
    name = peer = ""
    waited = 0.0
    for family in _parser()(text):
        for sample in family.samples:
            name = name or sample.labels.get("node", "")
            if sample.name == "gossamer_figure":
                figures[sample.labels["figure"]] = sample.value
            elif sample.name == "gossamer_waiting_seconds":
                if sample.value >= SHORT:
                    peer, waited = sample.labels["peer"], sample.value
            elif "peer" not in sample.labels:
                found[sample.name] = sample.value
    if "gossamer_round" not in found:
        return Node(address)
    changes = found.get("gossamer_changes_total")
    return Node(
        address,
        name,
        int(found["gossamer_round"]),
        peer,
        waited,
        figures,
        found.get("gossamer_bytes_sent_total", 0.0),
        int(found.get("gossamer_overflows_total", 0) + found.get("gossamer_skipped_total", 0)),
        None if changes is None else int(changes),
    )


def _run(run: StoredRun) -> WatchedRun:
    """How far a run is."""
    try:
        e, rows, outcome = run.experiment, run.rows, run.outcome or {}
        title = f"{run.label}, lr {e.lr:g}, seed {e.seed}"
        metric, row = run.metric, rows[-1] if rows else None
        status = run.status if outcome else "running" if _is_made(run.directory) else "stopped"
        part = 1.0 if status == "done" else min(e.progress(row), 1.0) if row else 0.0
        reached = f"{metric.name} {metric.with_unit(row[metric.name])}" if row else NONE
        left, whole = None, outcome.get("seconds") if status == "done" else None
        if status == "running" and 0 < part < 1:
            spent, since = seconds_so_far(run.directory)
            whole = spent / part
            left = max(0.0, whole - spent - since)
    except (GossamerError, OSError) as error:
        return WatchedRun(run.directory.name, "unreadable", 0.0, NONE, None, str(error))
    return WatchedRun(title, status, part, reached, left, str(outcome.get("reason", "")), whole)


def _is_made(directory: Path) -> bool:
    """Whether a process is making this run: one of this machine that holds its claim, or one that wrote lately."""
    process = holder(directory.parent, directory.name)
    if process is None:
        return False
    try:
        os.kill(process, 0)
    except PermissionError:
        pass
    except OSError:
        files = [directory / name for name in ("run.json", "metrics.jsonl")]
        return any(f.exists() and time.time() - f.stat().st_mtime < FRESH for f in files)
    return True


def _sweep(place: Path) -> Sweep:
    """The runs of a directory, those of the sweep's plan that have not begun among them."""
    ids = {path.parent.relative_to(place): None for path in sorted(place.rglob("run.json"))}
    ids |= {
        (plan.parent / name).relative_to(place): None for plan in place.rglob(PLAN) for name in planned(plan.parent)
    }
    if not ids:
        raise InputError(f"No runs in {place}: a run is a directory with a run.json.")
    begun = [StoredRun(place / name) for name in ids if (place / name / "run.json").exists()]
    made = [_run(run) for run in begun]
    ended = {status: sum(r.status == status for r in made) for status in ("done", "diverged", "failed", "unreadable")}
    running = [r for r in made if r.status == "running"]
    parts = [1.0 if r.status in ended else r.part for r in made]
    took = [r.whole for r in made if r.whole is not None]
    to_make = len(ids) - sum(parts)
    left = sum(took) / len(took) * to_make / len(running) if took and running else None
    return Sweep(str(place), len(ids), ended, sum(parts) / len(ids), left, running)


def page(look: Snapshot, every: float) -> str:
    """The look as one HTML page that loads itself again."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return render(
        "watch.html",
        title="Gossamer: what is going on",
        lead=f"As of {now}; the page loads itself again every {every:g} s.",
        every=max(1, round(every)),
        tables=look.tables(),
        sentences=look.sentences(),
    )
