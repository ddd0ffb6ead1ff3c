"""`slshudi table`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from airflow_provider_slshudi.cli.common import Commands, add_json, add_pipeline, print_json, print_table, work_of

if TYPE_CHECKING:
    from airflow_provider_slshudi.handover.findings import Findings

DAMAGED = 1


def add_to(commands: Commands) -> None:
    """Adds the command."""
    table = commands.add_parser("table", help="look after the Hudi table")
    within = table.add_subparsers(required=True, metavar="COMMAND")
    command = within.add_parser(
        "rebuild-metadata",
        help="make a damaged metadata table anew",
        description="Compares the metadata table with what is on storage, deletes it and makes it anew. What is "
        "prepared stays so. Batches wait meanwhile. Exit codes of --check: 0 it agrees with storage, 1 it does not.",
    )
    add_pipeline(command)
    command.add_argument("--check", action="store_true", help="compare only, change nothing")
    add_json(command)
    command.set_defaults(run=_run)

    check = within.add_parser(
        "check",
        help="look for what other clients left in the table that hides rows or stops readers",
        description="Looks at what Hudi is told of the table and at all base files. Changes nothing, and nothing waits "
        "for it. Exit codes: 0 there is nothing to mend, 1 there is.",
    )
    add_pipeline(check)
    add_json(check)
    check.set_defaults(run=_check)
    mend = within.add_parser(
        "mend",
        help="mend what check finds, beside running batches",
        description="Takes wrong bounds out of Hudi's index and adds those that the pipeline's file wants, and "
        "corrects the table's properties. May be cut off and repeated. Exit codes: 0 nothing is left, 1 something is.",
    )
    add_pipeline(mend)
    add_json(mend)
    mend.set_defaults(run=_mend)

    version = within.add_parser(
        "version",
        help="show Hudi's version of the table, or change it by Hudi's own steps",
        description="The version says which engines can read the table. To change it, batches that are undecided are "
        "settled first, log files of a Merge-On-Read table are compacted, and nothing may be under way: pause the "
        "pipeline's DAGs. May be cut off and repeated.",
    )
    add_pipeline(version)
    version.add_argument("--to", type=int, metavar="N", help="the version that the table is to have: 6, 8 or 9")
    add_json(version)
    version.set_defaults(run=_version)

    accept = within.add_parser(
        "accept-erased",
        help="accept that another client took rows out of the table: a dropped partition, a deletion",
        description="Compares the files before and after each change that this pipeline did not write. A change that "
        "added or changed rows is refused; of one that took rows away, their keys stay on record, so batches go on, "
        "verify looks for all other rows, and nothing is read again.",
    )
    add_pipeline(accept)
    accept.add_argument("--reason", required=True, metavar="TEXT", help="stays in the pipeline's history")
    add_json(accept)
    accept.set_defaults(run=_accept)


def _run(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.handover.findings import COUNTS
    from airflow_provider_slshudi.services.metadata import check_metadata, rebuild_metadata

    work = work_of(options.pipeline)
    compared = (check_metadata(work),) if options.check else rebuild_metadata(work)
    checks = dict(zip(("before", "after"), compared, strict=False))
    if options.json:
        entries = {when: {"ok": item.ok, **asdict(item)} for when, item in checks.items()}
        print_json(options.out, {"pipeline": work.pipeline.name, **entries})
    else:
        columns = ("", *COUNTS, "ahead", "unreadable", "examples")
        print_table(
            options.out,
            f"{work.pipeline.name}: the metadata table beside what is on storage",
            columns,
            [
                (when, *(getattr(item, name) for name in COUNTS), item.ahead, item.unreadable, " ".join(item.examples))
                for when, item in checks.items()
            ],
        )
    return 0 if list(checks.values())[-1].ok else DAMAGED


def _check(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.services.metadata import check_indexes

    work = work_of(options.pipeline)
    return _show(options, work.pipeline.name, check_indexes(work))


def _mend(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.services.metadata import mend_indexes

    work = work_of(options.pipeline)
    return _show(options, work.pipeline.name, mend_indexes(work))


def _show(options: argparse.Namespace, pipeline: str, found: Findings) -> int:
    if options.json:
        print_json(options.out, {"pipeline": pipeline, "ok": found.ok, **asdict(found)})
    else:
        rows = [
            ("indexes that batches do not keep", len(found.foreign), ", ".join(found.foreign)),
            ("bounds that hide rows", len(found.hiding), ", ".join(found.hiding)),
            ("bounds that are wanted", len(found.lacking), ", ".join(found.lacking)),
            ("folders said to be escaped", int(found.escaped), ""),
        ]
        print_table(options.out, f"{pipeline}: to be mended", ("what", "number", "which"), rows)
    return 0 if found.ok else DAMAGED


def _accept(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.handover.names import Act
    from airflow_provider_slshudi.repair.actions import perform
    from airflow_provider_slshudi.storage.owners import this_user

    work = work_of(options.pipeline)
    done = perform(work, lambda run: None, Act.ACCEPT_ERASED, this_user(), options.reason)
    if options.json:
        print_json(options.out, {"pipeline": work.pipeline.name, "done": done})
    else:
        print(done, file=options.out)
    return 0


def _version(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.services import version

    work = work_of(options.pipeline)
    if options.to is not None:
        version.change(work, options.to)
    versions = version.versions(work)
    if options.json:
        print_json(options.out, {"pipeline": work.pipeline.name, "versions": versions})
    else:
        print_table(
            options.out, f"{work.pipeline.name}: version of Hudi's tables", ("table", "version"), versions.items()
        )
    return 0
