"""One long run of up to eight sites to which random things happen.

python -m tests.optim.site_events PLACE EVENTS SEED [hosts]        # with `hosts` every site has a network of its own
python -m tests.optim.site_events PLACE split                      # five such sites, two of which are cut off together
"""

import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.optim.site_runs import LOOPBACK, NAMES, Director

PATIENCE, OUTAGE = 2.0, 6.0
ROUNDS, AT_LEAST, FEWEST = 6000, 3, 4
LONG: dict[str, Any] = {
    "rounds": ROUNDS,
    "milestones": range(ROUNDS * 4 // 5, ROUNDS, ROUNDS // 30),
    "options": {"weight_decay": 1e-3},
}
"""Weight decay and steps that get shorter at the end make where it ends depend little on how it got there."""
BRIDGE = "10.9.0.254"


class Events:
    """What happens to the sites, and how long the others need until their next round."""

    def __init__(self, director: Director, seed: int) -> None:
        self.director, self.draw = director, random.Random(seed)
        self.up = set(director.names[:6])
        self.away: dict[str, tuple[str, float]] = {}
        """Sites that are not there: what happened to them, and when they come back."""
        self.unused = list(director.names[6:])
        self.times: list[tuple[str, float]] = []

    def happen(self) -> None:
        """One event, or two at once, and all rounds that it delays."""
        due = [name for name, (_, when) in self.away.items() if time.time() >= when]
        possible = ["return"] * 4 * bool(due) + ["new site"] * bool(self.unused) + ["coordinator killed"]
        if len(self.up) > FEWEST:
            possible += ["kill -9", "SIGSTOP", "clean leave"] * 2
            possible += ["link down"] * 2 * self.director.hosts
        if len(self.up) > FEWEST + 1:
            possible += ["two at once"] * 2
        possible += ["link down for less than patience"] * 2 * self.director.hosts
        kind = self.draw.choice(possible)
        before, began = self._round(), time.time()
        if kind == "two at once":
            for part in (self.draw.choice(("kill -9", "SIGSTOP")), self.draw.choice(("kill -9", "clean leave"))):
                self._do(part, due)
        else:
            kind = self._do(kind, due)
        self._settle(kind, before, began)

    def _do(self, kind: str, due: Sequence[str]) -> str:
        director = self.director
        name = self.draw.choice(sorted(self.up))
        back = time.time() + OUTAGE
        if kind == "return":
            return self._bring_back(self.draw.choice(sorted(due)))
        if kind == "new site":
            name = self.unused.pop(0)
            director.start(name)
            self.up.add(name)
        elif kind == "coordinator killed":
            director.kill_coordinator()
            time.sleep(self.draw.uniform(0.2, 2.0))
            director.start_coordinator()
        elif kind == "link down for less than patience":
            director.link(name, "down")
            time.sleep(PATIENCE / 2)
            director.link(name, "up")
        else:
            self.up.discard(name)
            self.away[name] = (kind, back)
            if kind == "kill -9":
                director.kill(name)
            elif kind == "SIGSTOP":
                director.send(name, signal.SIGSTOP)
            elif kind == "link down":
                director.link(name, "down")
            elif kind == "clean leave":
                director.send(name, signal.SIGTERM)
        return kind

    def _bring_back(self, name: str) -> str:
        director = self.director
        kind, _ = self.away.pop(name)
        self.up.add(name)
        if kind == "SIGSTOP":
            director.send(name, signal.SIGCONT)
            return "SIGCONT"
        if kind == "link down":
            director.link(name, "up")
            return "link up again"
        director.processes[name].join(OUTAGE)
        assert not director.processes[name].is_alive(), f"{name} has not left: {director.log(name)[-2000:]}"
        without = self.draw.random() < 0.5
        if without:
            director.forget(name)
        director.start(name)
        return "return without its disk" if without else "return with its disk"

    def _round(self) -> int:
        return max(self.director.round(name) for name in self.director.names)

    def _settle(self, kind: str, before: int, began: float) -> None:
        """Wait until all that are there have made a round in which nobody else took part."""
        goal = before + 6
        self.director.until(lambda: all(self.director.round(name) >= goal for name in self.up), 60)
        last = max(min(when for when, round in self.director.made(name) if round >= goal) for name in self.up)
        self.times.append((kind, last - began))
        print(
            f"{len(self.times):4d}  {kind:32s} {last - began:6.2f} s   round {goal}, {len(self.up)} sites", flush=True
        )
        time.sleep(self.draw.uniform(0.0, 0.5))

    def bring_all_back(self) -> None:
        for name in sorted(self.away):
            before, began = self._round(), time.time()
            time.sleep(max(0.0, self.away[name][1] - began))
            began = time.time()
            self._settle(self._bring_back(name), before, began)


def run(place: Path, events: int, seed: int, hosts: bool) -> dict[str, Any]:
    """The run; what it measured is also in `events.json`."""
    plan = {**LONG, "pace": 0.02, "patience": PATIENCE, "at_least": AT_LEAST, "every": 100}
    director = Director(place, NAMES, coordinator=BRIDGE if hosts else LOOPBACK, hosts=hosts, **plan)
    director.start_coordinator()
    try:
        for name in NAMES[:6]:
            director.start(name)
        director.advance(NAMES[:6], 20, 60)
        happening = Events(director, seed)
        while len(happening.times) < events - len(happening.away):
            happening.happen()
        happening.bring_all_back()
        for name in happening.unused:
            director.start(name)
        last = happening._round()
        end = director.finish(600)
    finally:
        director.__exit__()
    told = {"times": happening.times, "last event": last, "end": end}
    (place / "events.json").write_text(json.dumps(told))
    return told


def split(place: Path) -> None:
    """Cut two of five sites off, which still reach each other, for three times their patience."""
    five, two = NAMES[:5], NAMES[3:5]
    plan = {"rounds": 1500, "pace": 0.01, "patience": PATIENCE, "at_least": 2}
    with Director(place, five, coordinator=BRIDGE, hosts=True, **plan) as director:
        director.advance(five, 20, 60)
        subprocess.run("ip link add other type bridge && ip link set other up", shell=True, check=True)
        director.connect(two, "other")
        time.sleep(OUTAGE)
        during = {name: director.round(name) for name in five}
        director.advance(five[:3])
        later = {name: director.round(name) for name in five}
        director.connect(two, "switch")
        end = director.finish(120)
        told = {"during": during, "later": later, "end": end, "logs": {name: director.log(name) for name in five}}
    (place / "split.json").write_text(json.dumps(told))


def table(times: Sequence[tuple[str, float]]) -> str:
    """Per kind: how often, the median and the worst time to the next round."""
    rows = ["| event | times | median | worst |", "|---|---|---|---|"]
    for kind in sorted({kind for kind, _ in times}):
        took = [seconds for k, seconds in times if k == kind]
        rows.append(f"| {kind} | {len(took)} | {statistics.median(took):.1f} s | {max(took):.1f} s |")
    took = [seconds for _, seconds in times]
    return "\n".join([*rows, f"| all | {len(took)} | {statistics.median(took):.1f} s | {max(took):.1f} s |"])


if __name__ == "__main__":
    if sys.argv[2:] == ["split"]:
        sys.exit(split(Path(sys.argv[1])))
    measured = run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] == ["hosts"])
    print(table(measured["times"]))
    print({name: (t["round"], round(t["accuracy"], 3)) for name, t in measured["end"].items()}, measured["last event"])
