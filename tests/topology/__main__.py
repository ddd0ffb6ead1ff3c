"""`python -m tests.topology --batches 200 [--seed N]`: what several machines would run, and all of it dies.

Two schedulers, Celery workers and their broker, PostgreSQL, a Spark cluster, an S3 store and the log service: each is
killed and started again at random, or stands still, some of them for longer than a lease. Pipelines append and upsert
meanwhile. In the end the service's logs are compared with the tables' rows, one by one.
"""

from __future__ import annotations

import sys

from tests.chaos.__main__ import arguments, run
from tests.topology.place import place


def main() -> int:
    """Prints the outcome; 1 where a log is lost or doubled, or something is left undecided."""
    given = arguments(__doc__).parse_args()
    return run("topology", place, given.batches, given.seed)


if __name__ == "__main__":
    sys.exit(main())
