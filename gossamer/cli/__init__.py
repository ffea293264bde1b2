"""The command line: thin commands over the library. torch is imported only when a command needs it."""

import os
import sys
from typing import NoReturn


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 2 bad input, 130 interrupted."""
    from cyclopts import CycloptsError

    from gossamer.cli.app import app
    from gossamer.errors import GossamerError

    try:
        app(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        _fail(" ".join(str(error).split()) + f" See: gossamer {_command(arguments)}--help")
    except GossamerError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        print("gossamer: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(0)


def _command(arguments: list[str] | None) -> str:
    from gossamer.cli.app import app

    given = sys.argv[1:] if arguments is None else arguments
    return f"{given[0]} " if given and not given[0].startswith("-") and given[0] in app else ""


def _fail(sentence: str) -> NoReturn:
    print(f"gossamer: {sentence}", file=sys.stderr)
    sys.exit(2)
