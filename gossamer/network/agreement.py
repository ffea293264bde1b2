"""All ranks tell each other what they were started with, through the store of their process group.

The store is what torchrun already gives every process, so this needs no connection between nodes that are not
neighbours, and a rank that has not come is known by its number.
"""

import json
from collections import Counter
from typing import Any

import torch.distributed as dist

from gossamer.errors import GossamerError
from gossamer.network.waiting import PeerError, Waiting

_calls: Counter[str] = Counter()


def tell_all(group: dist.ProcessGroup, facts: dict[str, Any], waiting: Waiting, what: str) -> list[dict[str, Any]]:
    """What every rank of the group says, in the order of ranks. All ranks must call this equally often."""
    store = group.get_group_store()
    call = _calls[group.group_name]
    _calls[group.group_name] += 1
    keys = [f"gossamer/{call}/{rank}" for rank in range(group.size())]
    store.set(keys[group.rank()], json.dumps(facts))
    try:
        with waiting.everyone(what):
            store.wait(keys, waiting.timeout)
    except PeerError as error:
        missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
        if not missing:
            raise
        raise waiting.refuse(
            f"{_ranks(missing).capitalize()} did not come to {what} within {waiting.timeout.total_seconds():g} s; "
            f"start all nodes and let each of them make the same calls."
        ) from error
    return [json.loads(text) for text in store.multi_get(keys)]


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
            raise GossamerError(
                f"The nodes do not agree on the {key} (rank 0: {wanted}; {differing}; this is rank {ours}); "
                f"start every node with the same script and settings."
            )


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
