"""What goes wrong before a property can be judged: a class that is not what its author meant, a step that raises."""

import inspect

from gossamer.errors import InputError, describe
from gossamer.methods import Method
from gossamer.methods.contract import refuse_lost_fields
from gossamer.network import Ready


def refuse_unfinished(method: type[Method]) -> None:
    """Raise a `GossamerError` for a class without facts, or with annotated fields that nobody made into fields.

    >>> from gossamer import DSGD
    >>> class Half(DSGD):
    ...     share: float = 0.5
    >>> refuse_unfinished(Half)
    Traceback (most recent call last):
    ...
    gossamer.errors.InputError: Half annotates 'share' but is no dataclass, so 'share' is no hyper-parameter ...
    """
    if not hasattr(method, "facts"):
        raise InputError(
            f"{method.__qualname__} declares no facts; give the class a line such as "
            f"facts = Facts(title='{method.__qualname__}', sends=1)."
        )
    refuse_lost_fields(method)


def in_words(error: Exception, method: Method) -> str:
    """The error with the last line in the file of `step` that led to it, and the remedy where the cause is known."""
    _end_in_own_file(error, method)
    hint = ""
    if isinstance(error, TypeError | AttributeError) and Ready.__name__ in str(error):
        hint = "; mix and exchange give a message that may be under way, and its .wait() gives the tuple of vectors"
    return describe(error) + hint


def _end_in_own_file(error: Exception, method: Method) -> None:
    """Cut the traceback below the method's own file: what the network or torch did there is not its author's."""
    code = getattr(inspect.unwrap(type(method).step), "__code__", None)
    own, entry = None, error.__traceback__
    while code is not None and entry is not None:
        if entry.tb_frame.f_code.co_filename == code.co_filename:
            own = entry
        entry = entry.tb_next
    if own is not None:
        own.tb_next = None
