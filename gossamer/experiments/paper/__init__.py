"""The paper's experiments, table by table."""
