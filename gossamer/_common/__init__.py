"""What several packages need and no user sees: checks, formatting, files, checkpoint files, signals."""
