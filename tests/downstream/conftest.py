"""Pipelines with tables and mirrors, as for other tests."""

from tests.mirror.conftest import mirrored  # noqa: F401
from tests.transaction.conftest import scenario, server, upserts  # noqa: F401
