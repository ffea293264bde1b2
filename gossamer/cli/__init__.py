"""The command line: thin commands over the library. torch is imported only when a command needs it."""

import os
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from cyclopts import CycloptsError


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 success, 1 some runs failed, 2 a `GossamerError`, 130 interrupted.

    A run that diverges is not a failure: divergence is a result.
    """
    from cyclopts import CycloptsError

    from gossamer.cli.app import app
    from gossamer.errors import GossamerError

    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        app(arguments, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        _fail(f"{_sentence(error)} See: gossamer {_command(arguments)}--help")
    except GossamerError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        print("gossamer: interrupted; what is finished is kept", file=sys.stderr, flush=True)
        if any(thread.name.startswith("gossamer-worker") for thread in threading.enumerate()):
            os._exit(130)  # else Python would wait for what they are computing
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(0)


def _sentence(error: "CycloptsError") -> str:
    """What is wrong with the arguments, in one line."""
    from cyclopts import CoercionError, UnusedCliTokensError

    if isinstance(error, UnusedCliTokensError):
        return f"Unexpected argument {' '.join(error.unused_tokens or [])!r}; options begin with --."
    if isinstance(error, CoercionError) and error.token and error.target_type in (int, float):
        wanted = "a whole number" if error.target_type is int else "a number"
        name = error.token.keyword or (error.argument.name if error.argument else "The argument")
        return f"{name} needs {wanted}, not '{error.token.value}'."
    return " ".join(str(error).split())


def _command(given: list[str]) -> str:
    from gossamer.cli.app import app

    return f"{given[0]} " if given and not given[0].startswith("-") and given[0] in app else ""


def _fail(sentence: str) -> NoReturn:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from gossamer.experiments.real_nodes import Voice

        Voice().say(sentence)
    else:
        print(f"gossamer: {sentence}", file=sys.stderr)
    sys.exit(2)
