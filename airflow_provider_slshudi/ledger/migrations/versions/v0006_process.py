"""Which process works on a transaction."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Adds the column; the next step of a live transaction fills it."""
    # MySQL keeps what a migration that was killed has done.
    if "process" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("slshudi_transaction")}:
        op.add_column("slshudi_transaction", sa.Column("process", sa.String(250)))
