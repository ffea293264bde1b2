"""What a saved state dict holds for an optimizer, and whether it is this one's."""

from collections.abc import Collection, Sequence
from typing import Any

from torch import Tensor

from gossamer.errors import GossamerError


def refuse_foreign_groups(state_dict: dict[str, Any], keys: Collection[str], optimizer: str) -> None:
    """Raise if a parameter group says nothing of one of the `keys` that `optimizer` writes into all of them."""
    for group in state_dict["param_groups"]:
        lacking = set(keys) - group.keys()
        if lacking:
            raise GossamerError(
                f"The checkpoint says nothing of {', '.join(sorted(lacking))}: it was saved by another optimizer "
                f"or version, not by {optimizer}."
            )


def state_by_parameter(state_dict: dict[str, Any], parameters: Sequence[Tensor]) -> dict[Tensor, dict[str, Any]]:
    """The saved state of every parameter that has one; those that require a gradient must."""
    numbers = [n for group in state_dict["param_groups"] for n in group["params"]]
    both = list(zip(numbers, parameters, strict=True))
    saved = {p: state_dict["state"][n] for n, p in both if n in state_dict["state"]}
    lost = [n for n, p in both if p.requires_grad and p not in saved]
    if lost:
        raise GossamerError(
            f"The checkpoint holds no state for the parameters {lost}; they were frozen when it was written, or it "
            f"was written by another optimizer: freeze and unfreeze before loading as it was before saving."
        )
    return saved
