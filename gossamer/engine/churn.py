"""Who is there when: nodes that leave and return during a simulated run, listed or drawn at random."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gossamer._common.checks import check_choice, is_finite_number, normalized, parameters, split, whole_number
from gossamer.errors import InputError, unknown

WORDS = ("leaves", "joins")

ChurnEvent = tuple[int, str, int | Sequence[int]]
"""(round, "leaves" or "joins", a node or several): before that round, the nodes leave or join."""

_EXAMPLE = "(100, 'leaves', [3])"
_IN_WORDS = "'100 leaves 3; 250 joins 3' or 'random:up=12,down=4'"


@dataclass(frozen=True)
class Churn:
    """Nodes that leave and return: a list of changes, or a random process.

    `changes` are (round, "leaves" or "joins", nodes), counted from round 0, before which everybody is there; a node
    that leaves before round 0 is new when it joins. Otherwise every node is there for a random time, `up` on average,
    then away for `down` on average, and so on, independently of the others; a failure that would leave fewer than
    `at_least` nodes does not happen. Times are in epochs, or in rounds with `by="rounds"`. They are drawn from the
    run's seed, for every node by itself, so a run is the same run again, and a longer one begins like a shorter one.

    A node that was away for fewer than `stale` rounds keeps its own model; after a longer absence it takes the average
    model of the nodes that are there.

    >>> Churn([(100, "leaves", 3), (250, "joins", 3)]).present(nodes=4, rounds=1000)
    [(0, (0, 1, 2, 3)), (100, (0, 1, 2)), (250, (0, 1, 2, 3))]
    >>> Churn(up=12, down=4).present(nodes=8, rounds=400, rounds_per_epoch=20, seed=1)[1]
    (33, (0, 1, 2, 4, 5, 6, 7))
    """

    changes: Sequence[ChurnEvent] | None = None
    up: float | None = None
    down: float | None = None
    by: Literal["epochs", "rounds"] = "epochs"
    at_least: int = 1
    stale: int = 100

    def __post_init__(self) -> None:
        if (self.changes is None) != (self.up is not None and self.down is not None):
            raise InputError(
                f"Say how nodes come and go: give a list of changes such as {_EXAMPLE}, or up and down, the mean times "
                f"that a node is there and away."
            )
        for name in ("up", "down"):
            value = getattr(self, name)
            if value is not None and not (is_finite_number(value) and value > 0):
                raise InputError(f"{name} is a mean time above 0, not {value!r}.")
        check_choice("Churn", "by", self.by, ("epochs", "rounds"))
        if whole_number(self.at_least, "at_least", least=None) < 1:
            raise InputError(f"At least 1 node must stay, but at_least is {self.at_least}.")
        whole_number(self.stale, "stale, the rounds after which a node's model is out of date,")
        if self.changes is not None:
            object.__setattr__(self, "changes", _checked(self.changes))

    def present(
        self, nodes: int, rounds: int | None = None, rounds_per_epoch: int = 1, seed: int = 0, every: int = 1
    ) -> list[tuple[int, tuple[int, ...]]]:
        """(round, the nodes that are there from it on), beginning with round 0; a round appears if they change.

        With `every`, nodes change only before rounds that follow an exchange: a change waits for the next one. Without
        `rounds` there is no end: listed changes are checked for everything else, and nothing is drawn.
        """
        if self.changes is not None:
            _refuse_impossible(self.changes, nodes, rounds)
            events = iter(self.changes)
        else:
            events = self._drawn(nodes, rounds or 0, rounds_per_epoch, seed)
        here = set(range(nodes))
        found: dict[int, tuple[int, ...]] = {0: tuple(range(nodes))}
        for round, word, those in events:
            here = here.union(_several(those)) if word == "joins" else here.difference(_several(those))
            found[-(-round // every) * every] = tuple(sorted(here))
        timeline: list[tuple[int, tuple[int, ...]]] = []
        for round, there in sorted(found.items()):
            if (not timeline or there != timeline[-1][1]) and (rounds is None or round < rounds):
                timeline.append((round, there))
        return timeline

    def _drawn(self, nodes: int, rounds: int, rounds_per_epoch: int, seed: int) -> Iterator[ChurnEvent]:
        """The changes of the random process, in the order of rounds, then nodes."""
        if self.at_least > nodes:
            raise InputError(f"at_least is {self.at_least}, but there are {nodes} nodes; ask for at most as many.")
        unit = rounds_per_epoch if self.by == "epochs" else 1
        # 0 draws the batches of a node, 1 its model's random numbers (Dropout).
        generators = [np.random.default_rng([seed, node, 2]) for node in range(nodes)]

        def lasting(node: int, mean: float) -> int:
            return int(generators[node].geometric(1 / max(1.0, mean * unit)))

        up, down = self.up or 1.0, self.down or 1.0
        queue = [(lasting(node, up), node) for node in range(nodes)]
        heapq.heapify(queue)
        here = set(range(nodes))
        while queue[0][0] < rounds:
            round, node = queue[0]
            if node not in here:
                here.add(node)
                yield round, "joins", node
                heapq.heapreplace(queue, (round + lasting(node, up), node))
            elif len(here) > self.at_least:
                here.remove(node)
                yield round, "leaves", node
                heapq.heapreplace(queue, (round + lasting(node, down), node))
            else:
                heapq.heapreplace(queue, (round + lasting(node, up), node))


def churn_of(given: "Churn | Sequence[ChurnEvent] | str") -> Churn:
    """What a user means: a `Churn`, a list of changes, or either in words.

    >>> churn_of("100 leaves 3 5; 250 joins 3").changes
    ((100, 'leaves', (3, 5)), (250, 'joins', (3,)))
    >>> churn_of("random:up=12,down=4").up
    12.0
    """
    if isinstance(given, Churn):
        return given
    if not isinstance(given, str):
        return Churn(given)
    name, rest = split(given)
    if normalized(name) == "random":
        return Churn(**parameters("churn", "random", _random, rest))  # type: ignore[arg-type]
    changes, stale = [], Churn.stale
    for item in filter(None, map(str.strip, given.split(";"))):
        if item.startswith("stale="):
            stale = int(parameters("churn", "a list", _listed, item)["stale"])  # type: ignore[arg-type]
            continue
        words = item.split()
        if len(words) < 3 or not all(word.isdecimal() for word in (words[0], *words[2:])):
            raise InputError(f"Churn is written as in {_IN_WORDS}, but this part is not: '{item}'.")
        changes.append((int(words[0]), words[1], tuple(map(int, words[2:]))))
    return Churn(changes, stale=stale)


def _random(
    up: float, down: float, by: Literal["epochs", "rounds"] = "epochs", at_least: int = 1, stale: int = 100
) -> None:
    """What 'random:...' takes."""


def _listed(stale: int) -> None:
    """What a list of changes takes besides."""


def _several(nodes: int | Sequence[int]) -> Sequence[int]:
    return (nodes,) if isinstance(nodes, int) else nodes


def _checked(changes: object) -> tuple[ChurnEvent, ...]:
    """The changes with their nodes as tuples, ordered by round."""
    if not isinstance(changes, Sequence) or isinstance(changes, str):
        raise InputError(f"Churn is a list of changes such as {_EXAMPLE}, or in words {_IN_WORDS}, not {changes!r}.")
    found = []
    for change in changes:
        if not isinstance(change, Sequence) or isinstance(change, str) or len(change) != 3:
            raise InputError(f"A change is (round, 'leaves' or 'joins', nodes), as in {_EXAMPLE}, not {change!r}.")
        round = whole_number(change[0], "the round of a change")
        if change[1] not in WORDS:
            raise unknown("change of members", str(change[1]), WORDS)
        given = change[2] if isinstance(change[2], Sequence) and not isinstance(change[2], str) else (change[2],)
        nodes = tuple(whole_number(node, "the node of a change") for node in given)
        if not nodes:
            raise InputError(f"The change in round {round} names no node; name at least one, as in {_EXAMPLE}.")
        found.append((round, str(change[1]), nodes))
    return tuple(sorted(found, key=lambda change: change[0]))


def _refuse_impossible(changes: Sequence[ChurnEvent], nodes: int, rounds: int | None) -> None:
    """Raise for a change that cannot happen in a run of so many nodes and rounds."""
    here = set(range(nodes))
    for round, word, those in changes:
        if rounds is not None and round >= rounds:
            raise InputError(
                f"A node {word} before round {round}, but the run has the rounds 0 to {rounds - 1}; choose an earlier "
                f"round, or a longer run."
            )
        for node in _several(those):
            if node >= nodes:
                raise InputError(f"Node {node} {word} before round {round}, but the nodes are 0 to {nodes - 1}.")
            if (node in here) == (word == "joins"):
                there = "it is there already" if word == "joins" else "it is not there then"
                raise InputError(f"Node {node} {word} before round {round}, but {there}; remove one of its changes.")
            here.symmetric_difference_update({node})
        if not here:
            raise InputError(f"All nodes are gone from round {round} on; let at least one stay.")
