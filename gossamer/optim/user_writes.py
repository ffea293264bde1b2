"""Parameters that the user writes to between two steps."""

from gossamer.errors import InputError
from gossamer.optim.bucket import Bucket


def take_over_writes(bucket: Bucket, round: int, overlaps: bool, loaded: bool, laid_out: bool) -> None:
    """Go on from what the user has written, or say why that cannot be done silently.

    Where the method `overlaps`, the old values are already under way. `loaded` says that the optimizer's state has just
    come out of a checkpoint, `laid_out` that the bucket is new, so that it has not seen what was written before.
    """
    if bucket.born == round:
        return
    if not overlaps:
        bucket.read()
    elif bucket.written(thoroughly=loaded or laid_out):
        if loaded:
            raise InputError(
                "The model's parameters are not those that were saved with this optimizer state; load the model's "
                "checkpoint of the same round, or call resend() on all nodes to go on from the present ones."
            )
        raise InputError(
            f"The parameters were written to between two steps, but their old values are already on their way to "
            f"the neighbours (round {round}); call resend() on all nodes after writing them."
        )
