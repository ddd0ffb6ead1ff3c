"""Runs the command of a container with its secrets, where Java and Spark are found: `start.py COMMAND ARGUMENT...`."""

import os
import sys

from secrets_of import variables

from airflow_provider_slshudi.spark.runtime import environment

os.environ.update(variables(os.environ))
os.environ.update(environment())
os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606
