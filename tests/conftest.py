"""Settings for all tests."""

import signal

import pytest

# A shell that starts the tests in the background lets them ignore Ctrl-C, which some of them send.
signal.signal(signal.SIGINT, signal.default_int_handler)

# torch is imported where it is used: the process that only hands out the tests does without.


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tensors in tests are small: one thread each is faster when tests run side by side, and it fixes the bits."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Every test sees the same random numbers, alone or after others."""
    import torch

    torch.manual_seed(0)


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
