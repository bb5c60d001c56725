"""What datasets ask for; see `gristmill._dataset.model.observer`."""

from gristmill._observe.drawing import figure_of as figure_of
from gristmill._observe.reporting import report_of as report_of
from gristmill._observe.reporting import report_of_run as report_of_run
from gristmill._observe.watching import open_chain as open_chain
