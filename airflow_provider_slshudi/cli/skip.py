"""`slshudi skip`."""

from __future__ import annotations

import argparse

from airflow_provider_slshudi.cli.abandon import user
from airflow_provider_slshudi.cli.common import Commands, add_pipeline, print_table, work_of


def add_to(commands: Commands) -> None:
    """Adds the command."""
    command = commands.add_parser(
        "skip",
        help="give up log groups that cannot be read; a batch records them as a gap",
        description="Pulls each unread log group of some cursors by itself and shows those that cannot be read; with "
        "--reason commits a batch that records all unread ones as a gap, and keeps their bytes below "
        ".hoodie/slshudi/skipped. Their logs will not be in the table.",
    )
    add_pipeline(command)
    command.add_argument("cursors", metavar="SHARD:BEGIN-END", help="cursors of a shard, the end excluded")
    command.add_argument("--reason", help="why; stays in the pipeline's history. Without it nothing is changed")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.notes.acts import Act
    from airflow_provider_slshudi.protocol.acts import perform
    from airflow_provider_slshudi.protocol.skip import parsed, unreadable

    work, wanted = work_of(options.pipeline), parsed(options.cursors)
    if options.reason:
        done = perform(work, lambda run: None, Act.SKIP, user(), options.reason, cursors=options.cursors)
        print(done, file=options.out)
        return 0
    found = [(item.shard, item.begin, why) for item, why in unreadable(work, wanted).items()]
    print_table(options.out, f"{wanted}: log groups that cannot be read", ("shard", "cursor", "why"), found)
    print("nothing was changed; --reason TEXT skips all of these cursors that no batch has read", file=options.out)
    return 0
