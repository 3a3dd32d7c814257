"""Functions that combine operators; all are reached through `flambeau.nn.functional`."""
