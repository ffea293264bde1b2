"""Which node a process is, and what all nodes agree on.

The ranks tell each other what they were started with through the store of their process group. Every process has one
already, so this needs no connection between nodes that are not neighbours, and a missing rank is known by its number.
"""

import hashlib
import json
import operator
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store

from gossamer.errors import InputError, PeerError
from gossamer.network.faults import Board
from gossamer.network.waiting import Waiting
from gossamer.topology import Topology

NODE_VARIABLE = "GOSSAMER_NODE"
"""The environment variable that names this process's node where the program does not."""

_POLL = 0.2
_mark = uuid.uuid4().hex
_calls: Counter[str] = Counter()
_boards: dict[str, Store] = {}


def own_node(topology: Topology, node: int | str | None, rank: int) -> int:
    """The number of the node that the program, else the environment, else the rank says; a label wins over a number."""
    if node is None and topology.n > 1:
        given = os.environ.get(NODE_VARIABLE, "")
        is_number = given.isdecimal() and given not in (topology.labels or ())
        node = int(given) if is_number else given or None
    if node is None:
        return rank
    if isinstance(node, str):
        labels = topology.labels or ()
        if node not in labels:
            known = ", ".join(labels) or "numbered"
            raise InputError(f"The graph has no node called '{node}'; its nodes are {known}.")
        return labels.index(node)
    try:
        node = operator.index(node)
    except TypeError:
        raise InputError(f"node={node!r} names no node; give a number from 0 on, or a label of the topology.") from None
    if not 0 <= node < topology.n:
        raise InputError(f"node={node} does not exist: the graph has the nodes 0 to {topology.n - 1}.")
    return node


def tell_all(
    group: Any,
    facts: dict[str, Any],
    waiting: Waiting,
    what: str,
    name_of: Callable[[int], str] = str,
) -> list[dict[str, Any]]:
    """What every rank of the group says, in the order of ranks. All ranks must call this equally often."""
    if waiting.rebuilds:
        return _tell_directly(group, facts, waiting, what)
    name, ranks = group.group_name, range(group.size())
    call = _calls[name]
    _calls[name] += 1
    keys = [f"{call}/{rank}" for rank in ranks]
    with waiting.everyone(what):
        deadline, pause = time.monotonic() + waiting.timeout.total_seconds(), 0.002
        known = _boards.get(name)
        board = known or _board(group)
        board.set(keys[group.rank()], json.dumps(facts))
        while not board.check(keys):
            if waiting.board and (fault := waiting.board.first()):
                raise waiting.give_up(fault, name_of)
            if time.monotonic() > deadline:
                missing = [rank for rank in ranks if not board.check([keys[rank]])]
                if not missing:  # the last one has come just now
                    break
                raise waiting.refuse(
                    f"{_ranks(missing).capitalize()} did not come to {what} within "
                    f"{waiting.timeout.total_seconds():g} s; start all nodes and let each of them make the same calls."
                )
            time.sleep(pause)
            pause = min(2 * pause, _POLL)
            if known is None:
                board = _board(group)
                board.set(keys[group.rank()], json.dumps(facts))
        _boards[name] = board
        return [_facts(text, rank, waiting) for rank, text in enumerate(board.multi_get(keys))]


def _tell_directly(group: Any, facts: dict[str, Any], waiting: Waiting, what: str) -> list[dict[str, Any]]:
    """The same among sites that come and go, whose connections are all they share."""

    def gathered(mine: Tensor) -> list[Tensor]:
        options = dist.distributed_c10d.AllgatherOptions()  # type: ignore[attr-defined]
        options.timeout = waiting.timeout
        rows = [torch.empty_like(mine) for _ in range(group.size())]
        group.allgather([rows], [mine], options).wait(waiting.timeout)
        return rows

    text = json.dumps(facts).encode()
    with waiting.everyone(what):
        sizes = [int(size) for size in gathered(torch.tensor([len(text)]))]
        padded = torch.frombuffer(bytearray(text.ljust(max(sizes))), dtype=torch.uint8)
        texts = [row.numpy().tobytes()[:size] for row, size in zip(gathered(padded), sizes, strict=True)]
    return [_facts(text, rank, waiting) for rank, text in enumerate(texts)]


def _facts(text: bytes, rank: int, waiting: Waiting) -> dict[str, Any]:
    """What a rank says; an error if it is not what a rank would say."""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise waiting.refuse(
            f"What rank {rank} said to the others cannot be read; install the same version of Gossamer everywhere, and "
            f"let no others reach the port of the store (docs/multi_host.md)."
        )
    return facts


def meeting_board(group: dist.ProcessGroup) -> Store:
    """The part of the store that belongs to the processes which have met, and to no earlier ones."""
    return _boards[group.group_name]


def open_board(group: dist.ProcessGroup, node: int) -> Board:
    """The board of a network whose nodes have just met: the number of their meetings tells it from other networks."""
    return Board(meeting_board(group), f"network/{_calls[group.group_name]}", node, group.size())


def _board(group: dist.ProcessGroup) -> Store:
    """The part of the store that belongs to the processes whose marks it now holds.

    A store may outlive the processes: after a restart it still holds what the killed ones said. Every process replaces
    its predecessor's mark by its own; once all have done so, they look for each other in the same part.
    """
    store = group.get_group_store()
    keys = [f"gossamer/{rank}" for rank in range(group.size())]
    store.set(keys[group.rank()], _mark)
    marks = [store.get(key) if store.check([key]) else b"" for key in keys]
    return PrefixStore(f"gossamer/{hashlib.sha256(b' '.join(marks)).hexdigest()[:16]}", store)


def check_same(told: list[dict[str, Any]], ours: int) -> None:
    """Raise an error that names the ranks which differ from the first, and in what."""
    first = told[0]
    for key in dict.fromkeys(key for facts in told for key in facts):
        wanted = first.get(key, "missing")
        others: dict[str, list[int]] = {}
        for rank, facts in enumerate(told):
            if facts.get(key, "missing") != wanted:
                others.setdefault(str(facts.get(key, "missing")), []).append(rank)
        if others:
            differing = ", ".join(f"{_ranks(ranks)}: {value}" for value, ranks in others.items())
            raise PeerError(
                f"The nodes do not agree on the {key} (rank 0: {wanted}; {differing}; this is rank {ours}); "
                f"start every node with the same script and settings."
            )


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
