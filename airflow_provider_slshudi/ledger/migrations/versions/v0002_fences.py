"""Who holds a lease, and what others wrote that is meant to be there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the columns."""
    op.add_column("slshudi_lease", sa.Column("process", sa.String(250)))
    op.add_column("slshudi_pipeline", sa.Column("accepted", sa.String(32)))
