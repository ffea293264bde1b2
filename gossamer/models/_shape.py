"""The check all models share."""

from gossamer.errors import InputError


def check(model: str, shape: tuple[int, int, int], classes: int, smallest: int) -> None:
    """Raise unless `shape` is (channels, height, width) with sides of at least `smallest`, and classes >= 1."""
    if len(shape) != 3 or min(shape) < 1:
        raise InputError(f"{model} needs a shape (channels, height, width), not {tuple(shape)}.")
    if min(shape[1:]) < smallest:
        raise InputError(
            f"{model} halves its input several times and needs images of at least {smallest}x{smallest}, "
            f"not {shape[1]}x{shape[2]}: use a smaller model or larger images."
        )
    if classes < 1:
        raise InputError(f"{model} needs at least one class, not {classes}.")
