"""Tables, figures and the one-file HTML report."""

from gossamer.report.comparison import collect
from gossamer.report.figures import write_figures
from gossamer.report.pages import check_report, write_report
from gossamer.report.tables import write_tables

__all__ = ["check_report", "collect", "write_figures", "write_report", "write_tables"]
