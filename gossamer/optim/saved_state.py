"""What a saved state dict holds for an optimizer, and whether it is this one's."""

from collections.abc import Collection, Sequence
from typing import Any

from torch import Tensor

from gossamer.errors import InputError


def refuse_foreign_groups(state_dict: dict[str, Any], keys: Collection[str], optimizer: str) -> None:
    """Raise if a parameter group says nothing of one of the `keys` that `optimizer` writes into all of them."""
    for group in state_dict["param_groups"]:
        lacking = set(keys) - group.keys()
        if lacking:
            raise InputError(
                f"The checkpoint says nothing of {', '.join(sorted(lacking))}: it was saved by another optimizer "
                f"or version, not by {optimizer}."
            )


def state_by_parameter(state_dict: dict[str, Any], groups: Sequence[dict[str, Any]]) -> dict[Tensor, dict[str, Any]]:
    """The saved state of the parameters in `groups`: all that require a gradient must have one, and no others."""
    there, here = ([len(group["params"]) for group in these] for these in (state_dict["param_groups"], groups))
    if there != here:
        raise InputError(
            f"The checkpoint has parameter groups of {there} parameters, but this optimizer has groups of {here}; it "
            f"was written by another model, or before or after add_param_group."
        )
    numbers = [n for group in state_dict["param_groups"] for n in group["params"]]
    both = list(zip(numbers, [p for group in groups for p in group["params"]], strict=True))
    saved = {p: state_dict["state"][n] for n, p in both if n in state_dict["state"]}
    lost = [n for n, p in both if p.requires_grad and p not in saved]
    if lost:
        raise InputError(
            f"The checkpoint holds no state for the parameters {lost}; they were frozen when it was written, or it "
            f"was written by another optimizer: freeze and unfreeze before loading as it was before saving."
        )
    dropped = [n for n, p in both if not p.requires_grad and p in saved]
    if dropped:
        raise InputError(
            f"The checkpoint holds the state of the parameters {dropped}, which are frozen now, so that it would be "
            f"lost: freeze and unfreeze before loading as it was before saving."
        )
    return saved
