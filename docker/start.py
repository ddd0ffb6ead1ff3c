"""Runs the command of a container where Java and Spark are found: `start.py COMMAND ARGUMENT...`."""

import os
import sys

from airflow_provider_slshudi.spark.runtime import environment

os.environ.update(environment())
os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606
