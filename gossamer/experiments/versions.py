"""Which version of the user's own files a run is made with: the file of its method, the file of its graph."""

from contextlib import suppress

from gossamer._common import specs
from gossamer.errors import GossamerError
from gossamer.experiments.experiment import Experiment
from gossamer.experiments.own_methods import version_of


def versions_of(experiment: Experiment) -> dict[str, str]:
    """Sixteen hex digits under "method" and "topology" where these come from a file, and change with it."""
    from gossamer import methods, topology

    found = {}
    method = version_of(methods.find(specs.split(experiment.method)[0]))
    if method is not None:
        found["method"] = method
    if specs.split(experiment.topology)[0] in ("file", "matrix"):
        # The graph of the file, not with the experiment's weights: the last bits of fastest weights vary.
        with suppress(GossamerError):  # the file is not here
            found["topology"] = topology.get(experiment.topology, experiment.nodes).fingerprint[:16]
    return found
