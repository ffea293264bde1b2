"""All ranks tell each other what they were started with, through the store of their process group.

The store is what torchrun already gives every process, so this needs no connection between nodes that are not
neighbours, and a rank that has not come is known by its number.
"""

import hashlib
import json
import time
import uuid
from collections import Counter
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from gossamer.errors import InputError
from gossamer.network.waiting import Waiting

_POLL = 0.2
_mark = uuid.uuid4().hex
_calls: Counter[str] = Counter()
_boards: dict[str, Store] = {}


def tell_all(group: dist.ProcessGroup, facts: dict[str, Any], waiting: Waiting, what: str) -> list[dict[str, Any]]:
    """What every rank of the group says, in the order of ranks. All ranks must call this equally often."""
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
            if time.monotonic() > deadline:
                missing = [rank for rank in ranks if not board.check([keys[rank]])]
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
        return [json.loads(text) for text in board.multi_get(keys)]


def meeting_board(group: dist.ProcessGroup) -> Store:
    """The part of the store that belongs to the processes which have met, and to no earlier ones."""
    return _boards[group.group_name]


def _board(group: dist.ProcessGroup) -> Store:
    """The part of the store that belongs to the processes whose marks it now holds.

    A store may outlive the processes: after a restart it still holds what the killed ones said. Every process puts its
    own mark in the place of its predecessor's; once all have done so, they look for each other in the same part.
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
            raise InputError(
                f"The nodes do not agree on the {key} (rank 0: {wanted}; {differing}; this is rank {ours}); "
                f"start every node with the same script and settings."
            )


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
