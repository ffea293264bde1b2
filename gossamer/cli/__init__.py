"""The command line: thin commands over the library. torch is imported only when a command needs it."""

import logging
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from gossamer._common.formatting import printable, say
from gossamer._common.signals import WORKER

if TYPE_CHECKING:
    from cyclopts import CycloptsError


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 success, 1 some runs failed, 2 bad input or a bad place, 130 interrupted.

    A run that diverges is not a failure: divergence is a result.
    """
    from cyclopts import CycloptsError

    from gossamer.cli.app import app
    from gossamer.errors import GossamerError, InputError

    arguments = sys.argv[1:] if arguments is None else arguments
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123
    if logging.lastResort:
        logging.lastResort.setFormatter(_PrintableLog())
    try:
        for argument in arguments:
            if any("\ud800" <= letter <= "\udfff" for letter in argument):  # bytes that Python could not decode
                raise InputError(f"The argument {argument!a} is not text in UTF-8; rename what it names.")
        app(arguments, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        _fail(f"{_sentence(error)} See: gossamer {_command(arguments)}--help")
    except GossamerError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        if any(thread.name == WORKER for thread in threading.enumerate()):
            say("gossamer: interrupted; what is finished is kept", error=True)
            os._exit(130)  # else Python would wait for what they are computing
        _fail("interrupted; what is finished is kept", 130)
    except BrokenPipeError:
        _fail("", 1)
    except (OSError, UnicodeError, RecursionError, OverflowError, MemoryError) as error:
        _fail(_outside(error))
    sys.exit(0)


class _PrintableLog(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


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


def _outside(error: Exception) -> str:
    """What the system or Python refused to do with what it was given: in this place no command has to expect it."""
    from gossamer.errors import describe

    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        if error.filename is None:
            return f"Cannot read or write: {reason}; check the place that this command reads from or writes to."
        return f"Cannot use {os.fsdecode(error.filename)}: {reason}; give another path."
    if isinstance(error, UnicodeEncodeError):
        return f"The text {error.object[error.start : error.end]!a} is no {error.encoding}; use UTF-8 everywhere."
    if isinstance(error, UnicodeError):
        return f"A file or a name is not text in UTF-8 ({describe(error)}); use UTF-8 everywhere."
    if isinstance(error, RecursionError):
        return f"Something that was given is nested too deeply ({describe(error)}); use fewer brackets."
    if isinstance(error, MemoryError):
        return f"There is not enough memory ({describe(error)}); use smaller numbers."
    return f"A number that was given is too large ({describe(error)}); use a smaller one."


def _fail(sentence: str, code: int = 2) -> NoReturn:
    if sentence:
        with suppress(OSError):
            _say(sentence)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            # What cannot be written now cannot be written when Python ends, which would then change the exit code.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def _say(sentence: str) -> None:
    """Say it once, also where torchrun has started many processes."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from gossamer.experiments.real_nodes import Voice

        Voice().say(sentence)
    else:
        say(f"gossamer: {sentence}", error=True)
