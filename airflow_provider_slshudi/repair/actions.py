"""Does what a person asked for, and leaves who asked, why, and what came of it."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_slshudi.exceptions import ConfigError
from airflow_provider_slshudi.handover.batch_files import Selection
from airflow_provider_slshudi.handover.names import PARAMS_SOURCE, Act
from airflow_provider_slshudi.repair.abandon import abandon
from airflow_provider_slshudi.repair.erase import accept_erased, told
from airflow_provider_slshudi.repair.rebuild import rebuild
from airflow_provider_slshudi.repair.recover import break_leases, recover
from airflow_provider_slshudi.repair.replay import replay
from airflow_provider_slshudi.repair.skip import parsed, skip
from airflow_provider_slshudi.services import metadata
from airflow_provider_slshudi.transaction.context import Work
from airflow_provider_slshudi.transaction.dangling import Ended
from airflow_provider_slshudi.transaction.settle import register

_RECENT = 50


def perform(
    work: Work,
    ended: Ended,
    act: Act,
    who: str,
    reason: str,
    transaction: str | None = None,
    cursors: str | None = None,
) -> str:
    """Does it, and returns what was done in a sentence; the ledger keeps who did it, why, and with what result.

    Args:
        work: the pipeline.
        ended: says whether a run has ended.
        act: what to do.
        who: the operator's name.
        reason: the operator's reason.
        transaction: the id of the transaction that is meant, if the act is about one.
        cursors: `SHARD:BEGIN-END`, if the act is about these.

    Raises:
        ConfigError: no reason is given, or a transaction is lacking, or does not wait for a decision.
        SlsHudiError: as the act itself does.
    """
    if not reason.strip():
        raise _wrong("reason", reason, "say why: people who read the history later have to understand it")
    if act.needs_transaction and not transaction:
        raise _wrong("transaction", transaction, f"{act.value} needs the id of a transaction")
    if act.needs_cursors and not cursors:
        raise _wrong("cursors", cursors, f"{act.value} needs cursors, as SHARD:BEGIN-END")
    name, run = work.pipeline.name, str(work.run)
    if any(deed.run == run and deed.result is not None for deed in work.ledger.audit_entries(name, _RECENT)):
        raise _wrong("act", act.value, "this run did it before, for a request of then; press the button again")
    if act is Act.ACCEPT_GAP:
        register(work)
        work.ledger.ask(name, act.value, who, reason, run, {})
        return "the next plan, within an hour, records as a gap what the service dropped"
    with work.ledger.audited(name, act.value, who, reason, run, transaction) as result:
        done = _HOW[act](work, ended, f"{reason} ({who})", cursors if act.needs_cursors else transaction)
        result.append(done)
    return done


def _recover(work: Work, ended: Ended, reason: str, transaction: str | None) -> str:
    done = recover(work, ended, [transaction] if transaction else [])
    said = [f"{item.transaction}: {item.decision.value}" for item in done.settled] or ["nothing was left to decide"]
    return "; ".join([*said, *(f"{live.transaction} was left: {live.why}" for live in done.left)])


def _abandon(work: Work, ended: Ended, reason: str, transaction: str | None) -> str:
    evidence = abandon(work, str(transaction), reason)
    return f"{transaction} was given up; the table showed {evidence.state.value}"


def _break_lease(work: Work, ended: Ended, reason: str, transaction: str | None) -> str:
    broken = break_leases(work, reason)
    return "; ".join(f"the lease of {item.holder} was ended" for item in broken) or "no run has a lease"


def _rebuild(work: Work, ended: Ended, reason: str, transaction: str | None) -> str:
    done = rebuild(work)
    return f"{done.committed} committed transactions are in the ledger, {len(done.rolled_back)} were rolled back"


def _forget(work: Work, ended: Ended, reason: str, transaction: str | None) -> str:
    rebuild(work, table_is_gone=True)
    return "the ledger forgot the table"


def _metadata(work: Work, ended: Ended, reason: str, transaction: str | None) -> str:
    before, _ = metadata.rebuild_metadata(work, only_damaged=True)
    if before.ok:
        return f"the metadata table is as it should be, {before.files} files"
    ahead = f"its newest time was {before.ahead}, which is yet to come; " if before.ahead else ""
    return (
        f"the metadata table was made anew: {ahead}{before.lacking} files were lacking in it, {before.gone} were "
        f"listed and gone, {before.differing} differed, {before.leftovers} leftovers were deleted"
    )


def _replay(work: Work, ended: Ended, reason: str, transaction: str | None) -> str:
    done = replay(work, Selection())
    if done is None:
        return "the quarantine never had a log"
    misfits = sum(done.left.values())
    return f"transaction {done.transaction} moved {done.moved} logs into the table, {misfits} do not fit"


def _dismiss(work: Work, ended: Ended, reason: str, transaction: str | None) -> str:
    failures = work.ledger.dismiss(work.pipeline.name)
    return "; ".join(f"{item.error} at {item.step} of {item.dag_id}" for item in failures) or "no failure was shown"


def _accept_erased(work: Work, ended: Ended, reason: str, transaction: str | None) -> str:
    done = accept_erased(work, reason)
    said = [told(item) for item in done.accepted] or ["no change by another client waits to be accepted"]
    return "; ".join([*said, *(f"instant {instant} is no erasure, and was left" for instant in done.left)])


def _skip(work: Work, ended: Ended, reason: str, cursors: str | None) -> str:
    done = skip(work, parsed(str(cursors)), reason)
    gaps = ", ".join(map(str, done.gaps))
    groups = f"{len(done.files)} log groups are kept in .hoodie/slshudi/skipped/{done.transaction}"
    lost = f"; the service does not give {', '.join(done.lost)}" if done.lost else ""
    return f"transaction {done.transaction} records {gaps} as a gap; {groups}{lost}"


_HOW: dict[Act, Callable[[Work, Ended, str, str | None], str]] = {
    Act.RECOVER: _recover,
    Act.ABANDON: _abandon,
    Act.BREAK_LEASE: _break_lease,
    Act.REBUILD_LEDGER: _rebuild,
    Act.TABLE_IS_GONE: _forget,
    Act.REBUILD_METADATA: _metadata,
    Act.REPLAY: _replay,
    Act.DISMISS: _dismiss,
    Act.ACCEPT_ERASED: _accept_erased,
    Act.SKIP: _skip,
}


def _wrong(field: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"{field}: {value!r}: {why}", source=PARAMS_SOURCE, field=field, value=value)
