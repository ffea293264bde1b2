"""From an experiment described in words to a run on disk: trainings, sweeps, the paper's tables by name."""
