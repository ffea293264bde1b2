"""Settings for all tests."""

import gc
import os
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import hypothesis
import pytest

# `make test-slow` tries the methods' properties on many more drawn cases.
hypothesis.settings.register_profile("thorough", max_examples=1000)

# A shell that starts the tests in the background lets them ignore Ctrl-C, which some of them send.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tensors in tests are small: one thread each is faster when tests run side by side, and it fixes the bits.
os.environ["OMP_NUM_THREADS"] = "1"

TESTS = Path(__file__).parent
USE_KERNELS = ("engine", "experiments", "cli", "docs", "examples")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the first worker compile the kernels and do what uses them; let all begin with the files of long tests.

    Those are the files with a timeout of their own. Begun first, one is not divided among workers, each of which would
    launch its processes once more. Of n workers each gets the next n-th of the list. One that has done its own takes
    over the end of another's.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    if workers == 1:
        return
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    own: list[list[pytest.Item]] = [[] for _ in range(workers)]
    has_long_tests = {item.path for item in items if item.get_closest_marker("timeout")}
    for path in sorted(files, key=lambda path: (path.name != "test_compiled.py", path not in has_long_tests)):
        uses_kernels = path.relative_to(TESTS).parts[0] in USE_KERNELS
        (own[0] if uses_kernels else min(own[1:], key=len)).extend(files[path])
    ends = [len(items) * k // workers for k in range(workers + 1)]
    sizes = [end - begin for begin, end in pairwise(ends)]
    spare = [item for mine, size in zip(own, sizes, strict=True) for item in mine[size:]]
    items.clear()
    for mine, size in zip(own, sizes, strict=True):
        items += mine[:size] + [spare.pop() for _ in range(size - len(mine))]


def pytest_collection_finish() -> None:
    """What is imported by now stays: let the garbage collector pass over it."""
    gc.collect()
    gc.freeze()


# torch is imported where it is used: the process that only hands out the tests does without.


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Every test sees the same random numbers, alone or after others."""
    import torch

    # torch.manual_seed would also note, with a stack trace each, that other devices are to be seeded.
    torch.default_generator.manual_seed(0)


@pytest.fixture
def _own_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that a test defines are forgotten after it."""
    from gossamer.methods import Method

    monkeypatch.setattr(Method, "_registry", dict(Method._registry))


@pytest.fixture
def gossamer(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run a command in this process that must end with exit code `code`; returns standard output and standard error."""
    from gossamer.cli import main

    def gossamer(*arguments: object, code: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        assert ended.value.code == code, err
        return out, err

    return gossamer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="fail if a test is skipped: all that it needs is there")


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.option.no_skips and reporter and reporter.stats.get("skipped"):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.option.no_skips:
        skipped = len(terminalreporter.stats.get("skipped", ()))
        terminalreporter.write_line(f"{skipped} skipped, but none may be." if skipped else "No test was skipped.")
