"""Why a run over real nodes ends: the fault of one node, told to all others, so that every node names the right one.

Word of a fault travels twice: in the header of a message that takes the place of the next ordinary one, from neighbour
to neighbour, and on the board, the part of the process group's store that belongs to this run. Whoever waits for long
also says so on the board: for whom, and in which round. A timeout follows that chain to its root, because the peer that
a node waits for usually waits itself.
"""

import json
import math
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from torch.distributed.distributed_c10d import PrefixStore, Store

from gossamer.errors import DivergenceError, GossamerError, PeerError

KINDS = ("loss", "gradient", "model", "sent", "silent", "closed", "link", "rounds", "settings", "lost")
"""What may be wrong; the first three are values that are not finite."""
VALUES = (math.nan, math.inf, -math.inf)
EVERYONE = -1
"""In a wait: not one peer, but all nodes."""
BEAT = 0.25
"""Seconds between two looks at what is being waited for."""
_STALE = 6 * BEAT
"""Seconds after which a wait that is not renewed belongs to a process that has stopped."""
ANSWER = 1.0
"""Seconds within which the store answers, unless it is gone."""
ASKING = "gossamer-board"
"""The name of a thread that asks the store."""
_NONSENSE = (ValueError, TypeError, OverflowError, RecursionError)
"""What reading text raises that is not what the board holds."""
_Answer = TypeVar("_Answer")


class Fault(NamedTuple):
    """What is wrong with a node, as numbers that fit into a header."""

    kind: str
    node: int
    round: int
    other: int = 0
    """A second number: the parameter group of a value that is not finite, or the other node of a link."""
    value: int = 0
    """Which of `VALUES` it is."""
    lr: float = 0.0
    """The step size of a value that is not finite, or the seconds for which a peer was waited for."""

    def word(self) -> int:
        """All but the round and the step size in one number; never 0."""
        return KINDS.index(self.kind) + 1 | self.value << 8 | (self.other & 0xFFFFF) << 16 | self.node << 40

    @classmethod
    def from_word(cls, word: int, round: int, lr: float) -> "Fault | None":
        """What `word` gave; None if the word is none of ours."""
        kind, value = (word & 0xFF) - 1, word >> 8 & 0xFF
        if not 0 <= kind < len(KINDS) or value >= len(VALUES) or word < 0:
            return None
        return cls(KINDS[kind], word >> 40, round, word >> 16 & 0xFFFFF, value, lr)

    def error(self, name: Callable[[int], str], timeout: float, certain: bool = True) -> GossamerError:
        """The error that says it, on any node. `certain` is False if the peer may itself wait for another."""
        if self.kind in KINDS[:3]:
            group = self.other if self.kind == "gradient" else None
            number = VALUES[self.value]
            return DivergenceError(self.node, self.round, number, self.lr, self.kind, group=group, name=name(self.node))
        who, other, timeout = name(self.node), name(self.other), self.lr or timeout
        sentence = {
            "sent": f"{who} sent numbers that are not finite in round {self.round}; look at its log, and install the "
            f"same version of Gossamer everywhere.",
            "silent": f"{who} has been silent for {timeout:g} s{'' if certain else ', or waits for another'}: it did "
            f"not send the message of round {self.round}; look at its log, or give a longer timeout= if it was busy "
            f"with something else.",
            "closed": f"{who} closed the connection before round {self.round} was complete: it crashed or stopped "
            f"early; look at its log, and give every node the same number of steps (gossamer.rounds).",
            "link": f"{who} and {other} wait for each other in round {self.round}: both are alive, but nothing has "
            f"come through between them for {timeout:g} s; look at the network between the two.",
            "rounds": f"{who} and {other} are out of step in round {self.round}; every node must call step() equally "
            f"often (gossamer.rounds(loader, n) makes it so), and resend() and average_() in the same round.",
            "settings": f"{who} and {other} differ in round {self.round} in their settings or in what they train; "
            f"give all nodes the same schedule, and change parameters on all nodes in the same round.",
            "lost": f"{who} is missing in round {self.round}, for which all nodes are needed; look at its log.",
        }[self.kind]
        return PeerError(sentence[0].upper() + sentence[1:])


class Board:
    """What the nodes of one network tell each other besides messages. Every call returns soon, or the board is gone."""

    def __init__(self, store: Store, name: str, node: int, nodes: int) -> None:
        self._store = PrefixStore(name, store)
        self._node, self._keys = node, [f"wait/{i}" for i in range(nodes)]
        self._beat = 0
        self._seen: dict[int, tuple[bytes, float]] = {}
        self._posted = False
        self._asking: float | None = None
        """Since when a question has been waiting for the store: the others are answered after it."""
        self._store.set(self._keys[node], "")

    # Whoever waits says so; called by the thread that watches ---------------------------------------------------------

    def post(self, peer: int, round: int) -> None:
        """Say for whom this node waits, and see for whom the others do."""
        self._beat += 1
        self._posted = True
        self._asking = time.monotonic()
        self._store.set(self._keys[self._node], json.dumps([peer, round, self._beat]))
        self._look()
        self._asking = None

    def retract(self) -> None:
        """Say that this node waits no more."""
        if self._posted:
            self._posted = False
            self._store.set(self._keys[self._node], "")

    def _look(self) -> bool:
        """Read what the others say; True if the board answers."""
        now = time.monotonic()
        for node, text in enumerate(self._store.multi_get(self._keys)):
            if self._seen.get(node, (None, 0.0))[0] != text:
                self._seen[node] = (text, now)
        return True

    # What is wrong ----------------------------------------------------------------------------------------------------

    def report(self, fault: Fault) -> Fault:
        """Tell all nodes, unless one was quicker: the first fault is the cause of all others. Returns that one."""
        said = self._soon(lambda: self._store.compare_set("fault", "", json.dumps(fault)))
        return self._read(said) or fault

    def first(self, patience: float = 0.0) -> Fault | None:
        """The fault that was told first, within some seconds; None if there is none or the board is gone."""
        deadline = time.monotonic() + patience
        while True:
            said = self._soon(lambda: self._store.get("fault") if self._store.check(["fault"]) else b"")
            if said is None or (found := self._read(said)) or time.monotonic() >= deadline:
                return found if said else None
            time.sleep(0.05)

    def root(self, peer: int, round: int) -> tuple[Fault, bool]:
        """Who is at fault if `peer` did not answer in `round`, and whether that is certain."""
        certain = bool(self._soon(self._look))
        now = time.monotonic()
        path, here = [self._node], peer
        while here not in path:
            path.append(here)
            told, since = self._seen.get(here, (b"", 0.0))
            wait = self._wait(told) if now - since < _STALE else None
            if wait is None:
                return Fault("silent", here, round), certain
            here, round = wait
            if here == EVERYONE:
                return self.missing(round), certain
        one, other = sorted((path[-1], here))
        return Fault("link", one, round, other), certain

    def missing(self, round: int) -> Fault:
        """The first node that waits for nobody, where all nodes are needed."""
        now = time.monotonic()
        for node in range(len(self._keys)):
            told, since = self._seen.get(node, (b"", 0.0))
            if node != self._node and not (told and now - since < _STALE):
                return Fault("lost", node, round)
        return Fault("link", self._node, round, (self._node + 1) % len(self._keys))

    def _soon(self, ask: Callable[[], _Answer]) -> _Answer | None:
        """The store's answer; None if it has not come in time. A store whose process is gone may never answer."""
        if self._asking is not None and time.monotonic() - self._asking > ANSWER:
            return None
        answer: list[Any] = []

        def work() -> None:
            try:
                answer.append(ask())
            except (RuntimeError, ValueError):
                answer.append(None)
            self._asking = None

        thread = threading.Thread(target=work, name=ASKING, daemon=True)
        asked = time.monotonic()
        thread.start()
        thread.join(ANSWER)
        if not answer:
            self._asking = asked
        return answer[0] if answer else None

    # What stands there may be anything --------------------------------------------------------------------------------

    def _wait(self, told: bytes) -> tuple[int, int] | None:
        """Whom a node says it waits for, and in which round; None if it does not, or says what makes no sense."""
        try:
            peer, round, _ = json.loads(told)
            peer, round = int(peer), int(round)
        except _NONSENSE:
            return None
        return (peer, round) if EVERYONE <= peer < len(self._keys) else None

    def _read(self, told: bytes | None) -> Fault | None:
        """The fault that stands on the board; None if none does, or what makes no sense."""
        try:
            kind, node, round, other, value, lr = json.loads(told or b"")
            found = Fault(str(kind), int(node), int(round), int(other), int(value), float(lr))
            whole = Fault.from_word(found.word(), found.round, found.lr) == found
        except _NONSENSE:
            return None
        return found if whole and found.node < len(self._keys) else None


def value_of(number: float) -> int:
    """Which of `VALUES` a number is that is not finite."""
    return 0 if math.isnan(number) else VALUES.index(number)
