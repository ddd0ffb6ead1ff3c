"""The page of documentation that each DAG and each task of a pipeline carries in Airflow."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple, dataclass
from datetime import timedelta

from airflow_provider_slshudi.config.pipeline import Pipeline


@dataclass(frozen=True)
class _Page:
    """What a person asks who looks at a DAG or a task for the first time, at night; Markdown.

    `keeps` says where its result is found afterwards; `again` what retrying, clearing and marking do.
    """

    does: str
    reads: str
    writes: str
    keeps: str
    states: str
    again: str
    failure: str


def _leave(step: str) -> str:
    return (
        f"The next run's `{step}` decides what this task left, also where it was marked by hand: a recorded batch "
        "is committed, any other is rolled back and its logs are read again. Nothing is lost or doubled either way."
    )


_LEAVE = _leave("settle")
_LAST_LINE = (
    "The last error in the log says what, where and what to do; the table of errors in `docs/operating.md` has more."
)
_ONE_BATCH = (
    "Clear a run from its `settle` on, or leave it: the next run decides what this one left. Do not clear single tasks "
    "of a batch; one that is cleared alone, or follows one that was marked by hand, changes nothing and says so. "
    "Marking a run or a task moves no data."
)
_STATES_OF_RUN = (
    "**success**: the batch is in the table; or, with its steps skipped, there was nothing to read. **failed**: at a "
    "step that is named by its task; the batch is in the table wholly or not at all. **running** for long at `settle`: "
    "another run works on its batch, something cannot be read, or another run decides; the log of `settle` says what."
)
_NO_RETRIES = (
    "It has no retries, also if asked for: the driver of a failed try may still be alive. Cleared when the "
    "batch is further on, it refuses in one line. Marking it changes nothing in table or ledger."
)
_SERVICE_AGAIN = "Safe, as often as you like: it finds its own work, and carries on what a try that died left."
_SERVICE_STATES = (
    "**success**: done, or nothing to do. **failed**: batches go on all the same; the next run tries again."
)

_DAGS = {
    "tail": _Page(
        "Reads what is new in `{source}`, and brings it into the table `{table}` exactly once. One run is one batch, "
        "one transaction of the ledger and one commit of the table: settle, plan, open, append, record, commit.",
        "the logs after those that the ledger says are read, up to `batch.max_bytes` a run.",
        "one commit of the table with the batch's ranges in its extra metadata; the transaction in the ledger; an "
        "event of the asset `hudi_{name}`.",
        "which cursors are read: in the ledger, and in the table's own commits.",
        _STATES_OF_RUN,
        _ONE_BATCH,
        "Usually nothing: the next run decides and goes on. " + _LAST_LINE + " To stop the pipeline, pause this DAG.",
    ),
    "backfill": _Page(
        "Reads those logs of `{source}` into the table `{table}` that the params name and that no batch has read: by "
        "`cursors`, or by the receive times `from` and `to`. One run is one batch; if more is left, its last task "
        "starts the next one (`ID.part2`, `ID.part3`, ...). The tail may go on meanwhile.",
        "the params' range less what is read, or is being read; at most `batch.max_bytes` a run.",
        "as the tail: one commit of the table, one transaction, one event of the asset `hudi_{name}`.",
        "which cursors are read: in the ledger, and in the table's own commits.",
        _STATES_OF_RUN,
        _ONE_BATCH + " To go on with a backfill, trigger the DAG again with the same params: what is read is left out.",
        _LAST_LINE + " Wrong params fail the run before anything is planned.",
    ),
    "recovery": _Page(
        "Decides what earlier runs left undecided in the table `{table}`, instead of at the next run of the tail: at "
        "once if you trigger it, and as soon as something dangles where it has a schedule. You rarely need it: each "
        "run of the tail does the same first.",
        "the ledger, the table's timeline, and which runs Airflow says have ended.",
        "commits recorded batches, rolls back the others; each decision, with what it saw, goes into the ledger.",
        "the decisions: returned by the task, and in each transaction's history.",
        "**success**: what no process works on is decided; `left` names the rest. **failed**: a person has to look.",
        "Safe, as often as you like. The param `transactions` also decides transactions whose run has not ended; "
        "runs that work on them are fenced off and stop.",
        _LAST_LINE,
    ),
    "repair": _Page(
        "Does what a person asks for on the pipeline's page, and runs only then: the param `act` says what, `reason` "
        "why, `transaction` for which batch, `cursors` for which log groups.",
        "what the act needs to see; the page shows it before.",
        "what the act says: `recover`, `break-lease`, `rebuild-metadata`, `replay` or `dismiss`. None loses data; "
        "`{name}_override` does those that may.",
        "who asked, why, and what came of it: in the ledger, on the pipeline's page.",
        "**success**: it is done. **failed**: the error says what is in the way; the ledger has it, too.",
        "Each act may be repeated: it finds its own work. Marking it changes nothing.",
        _LAST_LINE,
    ),
    "override": _Page(
        "Does what a person asks for on the pipeline's page and what may lose data; it runs only then. The param `act` "
        "says what, `reason` why, `transaction` for which batch. It is a DAG of its own so that it has permissions of "
        "its own.",
        "what the act needs to see; the page shows it before.",
        "what the act says: `abandon`, `rebuild-ledger`, `table-is-gone`, `accept-erased`, `accept-gap` or `skip`.",
        "who asked, why, and what came of it: in the ledger, on the pipeline's page.",
        "**success**: it is done. **failed**: the error says what is in the way; the ledger has it, too.",
        "Each act may be repeated: it finds its own work. Marking it changes nothing.",
        _LAST_LINE,
    ),
    "verify": _Page(
        "Proves that every log that the ledger calls committed is in the table `{table}` once, or fails. With the "
        "param `source` it also compares with what `{source}` still holds.",
        "the keys of all rows of the table, the ledger's ranges, and with `source` the logs themselves.",
        "nothing.",
        "the totals: returned by the task.",
        "**success**: every log once. **failed**: rows are missing, doubled, foreign or unreadable, or it could not "
        "look; the error says which.",
        "Safe, as often as you like; batches may go on meanwhile.",
        "`slshudi verify {name}` lists the ranges that do not agree.",
    ),
    "watch": _Page(
        "Looks whether the pipeline asks for a person, and fails with what it found; `on_failure_callback` "
        "names the people who are told.",
        "the ledger alone.",
        "nothing.",
        "nothing.",
        "**success**: nothing is to be told. **failed**: the error says what is to be told, or that it could not look.",
        "Safe, as often as you like.",
        "Do what the error names; the pipeline's page says how. " + _LAST_LINE,
    ),
    "operations": _Page(
        "Does, by its param `act`, what the schedule or a person asks for: `maintenance` of the table `{table}`, which "
        "each scheduled run does, `backfill`, `verify`, or an act of the pipeline's page that loses nothing. Each is "
        "some of the tasks; a run skips the others.",
        "what the act needs to see.",
        "`maintenance`: larger files for small ones, no files that were replaced longer ago than `maintenance.keep`. "
        "`backfill`: one commit, and the next run while ranges are left. The others: what the page says of them.",
        "who asked for a backfill or an act, and what came of it: in the ledger, on the pipeline's page.",
        "**success**: it is done. **failed**: the task's error says what is in the way.",
        "Each act may be asked for again: it finds its own work. Do not mark `choose` as a success: the tasks of all "
        "acts would go on.",
        _LAST_LINE + " Pausing this DAG pauses maintenance and backfills, and buttons wait. Queries must end within "
        "`maintenance.keep`: after that the files that they read are gone.",
    ),
    "maintenance": _Page(
        "Keeps the files of the table `{table}` few and large and its timeline short, while batches go on: clusters "
        "or compacts, cleans, archives, as `maintenance` in the pipeline's file says.",
        "the table's timeline and files.",
        "larger files for small ones; deletes files that were replaced longer ago than `maintenance.keep`; moves old "
        "instants into the archive.",
        "what each task did: returned by the task.",
        _SERVICE_STATES,
        _SERVICE_AGAIN,
        _LAST_LINE + " Queries must end within `maintenance.keep`: after that the files that they read are gone.",
    ),
}

_TASKS = {
    "settle": _Page(
        "Decides what earlier runs left undecided, then compares the newest commits of ledger and table. Nothing new "
        "begins before both agree.",
        "the ledger, the timelines of the table and of its quarantine, and which runs Airflow says have ended.",
        "commits recorded batches, rolls back the others; each decision goes into the ledger. Updates the asset "
        "`hudi_{name}` for each committed batch that has no event yet.",
        "what it decided: returned as `transaction`, `instant`, `decision`.",
        "**running**, or waiting for its next look without a worker slot: another run works on its batch, something "
        "cannot be read, or another run decides; the log says what. **success**: ledger and table agree. "
        "**skipped**: another run has read what this one would. **failed**: a person has to look, or an hour went by.",
        "Safe: it looks anew each time. Marked as a success it changes nothing: `plan` and `commit` look for "
        "themselves, and refuse where ledger and table disagree.",
        "Nothing was planned or written by this run. LedgerAhead and LedgerLost: `slshudi ledger rebuild {name}`. "
        + _LAST_LINE,
    ),
    "plan": _Page(
        "Pins the next batch: for each shard of `{source}` the cursors [begin, end) of logs that exist already and "
        "that no batch has read, up to `batch.max_bytes`.",
        "the service's shards and their ends, the ledger's coverage, the table's columns.",
        "a transaction with its ranges into the ledger: PLANNED.",
        "`transaction` and `token`: returned, and taken by the steps that follow.",
        "**success**: a batch is pinned. **skipped**: there is nothing new to read, and the run ends here. **failed**: "
        "nothing is pinned.",
        "A retry takes over what a dead try planned. Cleared after its batch was opened, it refuses: a run has one "
        "batch.",
        "DataExpired: logs were dropped before they were read, see `source.on_expired`. " + _LAST_LINE,
    ),
    "plan_backfill": _Page(
        "Pins the next batch of those logs of `{source}` that the params name and that no batch has read, up to "
        "`batch.max_bytes`.",
        "the params, the service's shards and cursors, the ledger's coverage.",
        "a transaction with its ranges into the ledger: PLANNED.",
        "`transaction`, `token`, and the `cursors` that the params stood for: returned, for the steps and runs that "
        "follow.",
        "**success**: a batch is pinned. **skipped**: all of it is read, or being read. **failed**: nothing is pinned.",
        "A retry takes over what a dead try planned. Cleared after its batch was opened, it refuses: a run has one "
        "batch.",
        "ConfigError: a param is wrong; trigger the DAG again. " + _LAST_LINE,
    ),
    "open": _Page(
        "Makes the table `{table}` if it does not exist, and puts a new instant on its timeline.",
        "the transaction and its ranges in the ledger.",
        "a REQUESTED instant, with its owner; the order for the append beside it. The transaction is OPEN then.",
        "the instant: returned.",
        "**success**: the instant is open. **failed**: an instant may be there; no reader sees anything of it.",
        _NO_RETRIES,
        _LEAVE + " " + _LAST_LINE,
    ),
    "append": _Page(
        "Runs the Spark job that pulls the batch's logs from `{source}`, to the exact ends of their ranges, and writes "
        "files of the table `{table}`. Readers see nothing of them yet.",
        "the order that `open` left; later changes of the pipeline's file do not matter.",
        "files, and a manifest of what was written. The instant is INFLIGHT.",
        "the manifest below `.hoodie/slshudi`, which `record` checks; the driver's output is in this task's log.",
        "**running**: the driver works; its page is linked while it has one. **success**: all was pulled and written. "
        "**failed**: nothing of it will be seen.",
        _NO_RETRIES + " Marked as failed while it runs, it ends its driver.",
        _LEAVE + " " + _LAST_LINE,
    ),
    "record": _Page(
        "Phase one: believes the append's manifest only if every planned range was read to its end and the rows add "
        "up; then makes it durable.",
        "the manifest, the ranges in the ledger, the pipeline's `checks` and `max_misfits`.",
        "manifest and totals into the ledger: PREPARED. From here on it will be committed, whichever process dies.",
        "rows, bytes, values that did not fit their columns, logs in quarantine, warnings: returned.",
        "**success**: the batch is recorded. **failed**: it is not, and its logs are read again.",
        "Retries are safe. Cleared, it finds that it is done. Marked as a success it records nothing, and `commit` "
        "refuses.",
        "CheckFailed, TooManyMisfits: the batch is not what the pipeline's file asks for. " + _LEAVE,
    ),
    "commit": _Page(
        "Phase two: commits the instant, so that readers of the table `{table}` see the batch.",
        "the transaction in the ledger, and the timeline once more.",
        "the completed instant, with the batch's ranges; the transaction is COMMITTED, its ranges are covered. An "
        "event of the asset `hudi_{name}`.",
        "`transaction`, `kind`, `instant`, `rows`, `bytes`, `place`, `partitions`: returned, and the event's `extra`.",
        "**success**: the batch is in the table. **failed**: it is recorded and will be, or is already; the next run "
        "says which.",
        "It has no retries: the next run's `settle` commits. Cleared after it committed, it changes nothing and sends "
        "its event again.",
        _LEAVE + " CommitStateUnknown in every run: mend what it names, or `slshudi abandon {name} ID`.",
    ),
    "partitions": _Page(
        "Completes the partitions of event times that are: all logs are committed that the service received until a "
        "partition's end and the declared `lateness`. Late logs open one again, and it is told once more.",
        "the ledger alone: what looks at the service and commits told.",
        "which partitions are complete, into the ledger. Events of the asset `hudi_{name}_partitions`.",
        "each partition that became complete, and how often it did: returned, in the events' `extra`, and by "
        '`SlsHudiChangesOperator` with `of="partitions"`.',
        "**success**: some became complete. **skipped**: none did. **failed**: the ledger does not answer; the batch "
        "is committed all the same.",
        "Safe, as often as you like. Events that a task that died had not sent are sent by the next run's.",
        _LAST_LINE,
    ),
    "drain": _Page(
        "Goes on where the batch before was full: whole transactions, one after the other, each committed on its own, "
        "until no log of `{source}` is left of which the last plan knew, or `batch.drain` is over.",
        "all that the steps of a batch read.",
        "all that the steps of a batch write; an event of the asset `hudi_{name}` for each batch.",
        "how many `batches` it committed: returned.",
        "**success**: it committed some; the log says whether one failed behind these. **skipped**: nothing was left, "
        "or another run was first. **failed**: its first batch failed, and nothing of that is seen.",
        _NO_RETRIES,
        _LEAVE + " " + _LAST_LINE,
    ),
    "sync": _Page(
        "Tells the pipeline's `catalog` of the columns and partitions of the table `{table}`, as of its newest commit.",
        "the table's timeline.",
        "the table's entry in the Hive metastore.",
        "nothing.",
        "**success**: the catalog is up to date. **failed**: the batch is committed all the same.",
        "Safe, as often as you like: each sync says everything.",
        "CatalogFailed: look after the metastore. The next run's sync makes up for this one.",
    ),
    "mirror": _Page(
        "Gives each completed instant of the table `{table}` a snapshot in the pipeline's `mirror`.",
        "the table's timeline, and how far each mirror is.",
        "the mirrors' own metadata, never a base file.",
        "nothing.",
        "**success**: the mirrors show what the table does. **failed**: the batch is committed all the same.",
        "Safe, as often as you like: each run begins where the mirror stands.",
        "MirrorFailed: look after the catalog. The next run makes up for this one. MirrorRefused says what to do.",
    ),
    "choose": _Page(
        "Chooses the tasks of what the run was asked for.",
        "the run's params.",
        "nothing.",
        "nothing.",
        "**success**: the tasks of the act go on, the others are skipped. **failed**: the run was given params of "
        "another act, or that no act has.",
        "Safe: it only reads. Marked as a success before it chose, it lets the tasks of all acts go on.",
        "Trigger the DAG again, with the `act` that is meant.",
    ),
    "rest": _Page(
        "Starts the next run of this backfill if logs of its params are left.",
        "the cursors that `plan` returned, and the ledger's coverage.",
        "a DAG run whose id follows from this one's, with a note; none twice.",
        "nothing.",
        "**success**: the next run is started. **skipped**: nothing is left, or that run is there already.",
        "Safe, as often as you like.",
        "Trigger the DAG again with the same params: what is read is left out. " + _LAST_LINE,
    ),
    "dangling": _Page(
        "Waits until something dangles: a transaction whose run has ended, an instant that no run finishes, a file "
        "that was cut off. A run that a person triggered does not wait.",
        "the ledger, the timelines of the table and of those beside it, and which runs Airflow says have ended.",
        "nothing.",
        "nothing; the next task decides.",
        "**success**: something dangles, or a person asks. **skipped**: nothing did within the time that it waits.",
        "Safe: it only looks.",
        _LAST_LINE,
    ),
    "recover": _Page(
        "Decides every transaction that no process works on any more, and those that the param `transactions` names.",
        "the ledger, the timelines of the table and of its quarantine, and which runs Airflow says have ended.",
        "commits recorded batches, rolls back the others; each decision goes into the ledger. Updates the asset "
        "`hudi_{name}` for each committed batch that has no event yet.",
        "`settled`: what it decided; `left`: transactions of runs that have not ended; both returned.",
        "**success**: ledger and table agree. **failed**: a person has to look.",
        "Safe: it looks anew each time. Marking it changes nothing.",
        _LAST_LINE,
    ),
    "repair": _Page(
        "Does what the run's params ask for, once.",
        "the params; ledger and table, as the act needs them.",
        "what the act says, and who asked for it, into the ledger.",
        "`done`: what was done, in a sentence; returned, and on the pipeline's page.",
        "**success**: it is done. **failed**: the error says what is in the way.",
        "It has no retries: the one who asked sees what happened, and decides. Cleared, it refuses what it has ended "
        "before: ask anew.",
        _LAST_LINE,
    ),
    "override": _Page(
        "Does what the run's params ask for and what may lose data, once.",
        "the params; ledger and table, as the act needs them.",
        "what the act says, and who asked for it, into the ledger.",
        "`done`: what was done, in a sentence; returned, and on the pipeline's page.",
        "**success**: it is done. **failed**: the error says what is in the way.",
        "It has no retries: the one who asked sees what happened, and decides. Cleared, it refuses what it has ended "
        "before: ask anew.",
        _LAST_LINE,
    ),
    "verify": _Page(
        "Compares the rows of the table `{table}`, by their keys, with the ledger, and fails if one is missing, "
        "doubled, foreign or unreadable.",
        "all rows' keys, as of the newest commit; with the param `source` the logs that `{source}` still holds.",
        "nothing.",
        "totals, `as_of`, and how many ranges were compared: returned.",
        "**success**: every log once. **failed**: not so, or it could not look; the error says which.",
        "Safe, as often as you like; batches may go on meanwhile.",
        "`slshudi verify {name}` lists the ranges that do not agree. A table with upserts cannot be proven.",
    ),
    "watch": _Page(
        "Compares what the ledger has of the pipeline with what its page calls `look` and `expires soon`, and with the "
        "limits of the DAG file.",
        "the ledger alone.",
        "nothing.",
        "nothing.",
        "**success**: nothing is to be told. **failed**: the error says what is to be told, or that it could not look.",
        "Safe, as often as you like. A finding is not retried; the next run tells it again while it stands.",
        "Do what the error names; the pipeline's page says how. " + _LAST_LINE,
    ),
    "clean": _Page(
        "Deletes files of the table `{table}` that were replaced longer ago than `maintenance.keep`, the quarantine's "
        "too.",
        "the timeline.",
        "a clean on the timeline; deletes files that no query may need any more.",
        "`instant` (None: nothing to do), `files`, `bytes`: returned.",
        _SERVICE_STATES,
        _SERVICE_AGAIN,
        "ForeignWrite: a pending clean of another client's would delete files that may be in use. " + _LAST_LINE,
    ),
    "archive": _Page(
        "Moves the oldest instants of the table `{table}` into the archive once there are more than "
        "`maintenance.max_commits`, the quarantine's too.",
        "the timeline.",
        "the archive of the timeline; deletes leftovers of batches that were rolled back.",
        "`instants` archived, `commits` left, `held_by` (a pending instant that holds it back, or None): returned.",
        _SERVICE_STATES,
        _SERVICE_AGAIN,
        "The same `held_by` for several runs: no run decides that batch; trigger `{name}_recovery`. " + _LAST_LINE,
    ),
    "cluster": _Page(
        "Makes few large files of many small ones in the table `{table}`, as `maintenance.clustering` says.",
        "the small files, by Spark.",
        "a clustering on the timeline, and the files that replace them; readers see the same rows.",
        "`instant` (None: nothing to do), `files` and `bytes` read, `into_files` and `into_bytes` written: returned.",
        _SERVICE_STATES,
        _SERVICE_AGAIN,
        _LAST_LINE,
    ),
    "compact": _Page(
        "Makes base files of the log files of the table `{table}`, after every `maintenance.compact_after` commits.",
        "base files and log files, by Spark.",
        "a compaction on the timeline, and the base files; readers see the same rows.",
        "`instant` (None: nothing to do), `files` and `bytes` read, `into_files` and `into_bytes` written: returned.",
        _SERVICE_STATES,
        _SERVICE_AGAIN,
        _LAST_LINE,
    ),
}


_FLEET = _Page(
    "Looks at many pipelines at once, and brings what is new of each into its table exactly once. Each pipeline that "
    "has something to do gets a task `batch` of its own, which is one transaction: settle, plan, open, append, record, "
    "commit. One that fails, is slow or needs a person holds up no other.",
    "where the shards of each logstore end; then, of those with news, up to `batch.max_bytes` each.",
    "for each pipeline with news one commit of its table, one transaction of the ledger, one event of the asset "
    "`hudi_NAME`.",
    "which cursors are read: in the ledger, and in each table's own commits.",
    "**success**: each pipeline with news has its batch, or nothing was new. **failed**: the `batch` of at least one "
    "pipeline failed; its name is the task's, and the others' batches are in their tables. **running** for long: a "
    "batch is large; the next run goes on with the other pipelines.",
    "Clear a failed `batch`, or leave it to the next run. Marking a run or a task moves no data.",
    "Look at the page of the pipeline that the failed task names. " + _LAST_LINE,
)
_OF_FLEET = {
    "look": _Page(
        "Finds the pipelines that have something to do: unread logs, a batch that an earlier run left, trouble, a "
        "table that no run has looked at for an hour. The logs that expire first come first.",
        "the ledger, and where the shards of each logstore end.",
        "what it saw of each logstore, and partitions that are complete without a log, into the ledger.",
        "the names of the pipelines: returned.",
        "**success**: a task for each of these pipelines follows, or none. **failed**: the ledger does not answer.",
        "Safe, as often as you like.",
        _LAST_LINE,
    ),
    "batch": _Page(
        "Decides what earlier runs left of the pipeline that names this task, then plans, writes, records and commits "
        "its next batch.",
        "the ledger, the table's timeline, and the logs of the batch.",
        "one commit of the table with the batch's ranges in its extra metadata; the transaction in the ledger; an "
        "event of the asset `hudi_NAME`.",
        "`transaction`, `kind`, `instant`, `rows`, `bytes`, `place`, `partitions`: returned, and the event's `extra`.",
        "**success**: the batch is in the table. **skipped**: nothing is new, or another run works on the pipeline's "
        "batch. **failed**: the error says at what; the batch is in the table wholly or not at all.",
        "It has no retries; the next run comes soon. Cleared, it first decides what is left. Marking it moves no data.",
        _leave("batch") + " " + _LAST_LINE,
    ),
}


def of_dag(pipeline: Pipeline, role: str, schedule: object, owner: str = "") -> str:
    """The page of a pipeline's DAG.

    Args:
        pipeline: the pipeline.
        role: the DAG's, which its name ends with.
        schedule: the DAG's schedule.
        owner: whom to ask; empty if the DAG names no owner.
    """
    title = f"# {role} of the pipeline `{pipeline.name}`"
    return _written(_DAGS[role], title, pipeline, owner, {"Runs": _when(schedule)})


def of_task(pipeline: Pipeline, step: str, owner: str = "") -> str:
    """The page of a task; `step` is what it does, see `_TASKS`, the other arguments are as in `of_dag`."""
    title = f"# {step.partition('_')[0]} of the pipeline `{pipeline.name}`"
    return _written(_TASKS[step], title, pipeline, owner, {})


def of_fleet(pipelines: Collection[str], schedule: object, owner: str = "") -> str:
    """The page of a fleet's DAG; arguments as in `of_dag`."""
    listed = ", ".join(f"`{name}`" for name in pipelines)
    items = {"Pipelines": f"{len(pipelines)}: {listed}", "Runs": _when(schedule)}
    return _page(_FLEET, f"# fleet of {len(pipelines)} pipelines", items, owner)


def of_fleets_task(step: str, owner: str = "") -> str:
    """The page of a fleet's task; arguments as in `of_task`."""
    return _page(_OF_FLEET[step], f"# {step} of a fleet", {}, owner)


def _when(schedule: object) -> str:
    return "by hand" if schedule is None else f"every {schedule}" if isinstance(schedule, timedelta) else f"{schedule}"


def _written(texts: _Page, title: str, pipeline: Pipeline, owner: str, more: dict[str, str]) -> str:
    names = {"name": pipeline.name, "source": pipeline.source.identity, "table": pipeline.table.path}
    page = _Page(*(text.format(**names) for text in astuple(texts)))
    items = {"Source": f"`{pipeline.source.identity}`", "Table": f"`{pipeline.table.path}`", **more}
    return _page(page, title, items, owner)


def _page(page: _Page, title: str, more: dict[str, str], owner: str) -> str:
    items = {**more, "Reads": page.reads, "Writes": page.writes, "Keeps": page.keeps}
    parts = [
        title,
        page.does,
        "\n".join(f"- **{name}**: {said}" for name, said in items.items()),
        f"**What its states mean.** {page.states}",
        f"**Retrying, clearing, marking.** {page.again}",
        f"**If it fails.** {page.failure}",
        *([f"**Whom to ask.** {owner}, the owner."] if owner else []),
    ]
    return "\n\n".join(parts)
