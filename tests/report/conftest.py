"""Runs to report on."""

import pytest

from gossamer.experiments.store import StoredRun
from tests.report.stored_runs import make_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> list[StoredRun]:
    return make_runs(tmp_path_factory.mktemp("runs"))
