"""One module for each engine, run in the engine's own process and environment; they import the standard library, the
engine, and nothing of the package."""
