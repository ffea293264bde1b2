"""Which parameters share a bucket."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from gossamer.methods import Method
from gossamer.network import DistributedNetwork
from gossamer.optim.bucket import Bucket, work_type


def buckets_for(
    groups: Sequence[dict[str, Any]],
    births: Mapping[Tensor, int],
    now: int,
    method_of: Callable[[dict[str, Any]], Method],
    network: DistributedNetwork,
) -> list[Bucket]:
    """The parameters that require a gradient, by round of birth (`now` where it is not given), type and device."""
    places: defaultdict[tuple[int, str, str], list[tuple[Tensor, int]]] = defaultdict(list)
    for number, group in enumerate(groups):
        for parameter in group["params"]:
            if parameter.requires_grad:
                born = births.get(parameter, now)
                key = (born, str(work_type(parameter.dtype)), str(parameter.device))
                places[key].append((parameter, number))
    buckets = []
    for (born, *_), members in sorted(places.items(), key=lambda place: place[0]):
        parameters, numbers = zip(*members, strict=True)
        buckets.append(Bucket(parameters, numbers, method_of(groups[numbers[0]]), network, born))
    return buckets
