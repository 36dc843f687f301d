"""Quality policies that were applied."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SCHEMA = "catalog"


def upgrade() -> None:
    op.create_table(
        "policies",
        sa.Column("id", sa.Integer, sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("text", sa.String, nullable=False),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_policies"),
        schema=SCHEMA,
    )


def downgrade() -> None:
    op.drop_table("policies", schema=SCHEMA)
