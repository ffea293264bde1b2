"""Runs to report on."""

import pytest
from filelock import FileLock

from gossamer.experiments.store import StoredRun
from tests.report.stored_runs import make_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory, worker_id) -> list[StoredRun]:
    """Made once for all workers of pytest-xdist: the first one trains, the others find the runs finished."""
    own = tmp_path_factory.getbasetemp()
    place = own if worker_id == "master" else own.parent
    with FileLock(place / "report-runs.lock"):
        return make_runs(place / "report-runs")
