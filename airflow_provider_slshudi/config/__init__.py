"""What a pipeline is: a YAML file, checked when it is loaded, before anything runs."""
