"""Random tables asked by every reader, beside a model in plain Python: no row is missing, none is too many."""
