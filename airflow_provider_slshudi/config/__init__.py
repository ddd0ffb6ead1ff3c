"""The model of a pipeline: a YAML file, checked when it is loaded, before anything runs."""
