"""How a pipeline runs: compiled to a plan, computed here or by workers.  Private."""
