"""What asks for a person: a pipeline's findings for the watch, and new keys of its logs."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from airflow_provider_slshudi.ledger.ledger import Ledger
from airflow_provider_slshudi.ledger.records import UnnamedKey
from airflow_provider_slshudi.views.freshness import NEWEST, late
from airflow_provider_slshudi.views.standing import WINDOW, Need, PipelineView, pipelines
from airflow_provider_slshudi.views.words import count, span


def unnamed(ledger: Ledger, pipeline: str, named: Container[str] = ()) -> list[UnnamedKey]:
    """The keys, and the fields of structs' JSON, that no column of a pipeline names, the newest first.

    Args:
        ledger: the ledger.
        pipeline: the pipeline's name.
        named: the keys that its file names by now (`Pipeline.named_keys`); the ledger learns them by the next batch.
    """
    return [key for key in ledger.unnamed_keys([pipeline]) if key.key not in named]


def new_keys(ledger: Ledger, since: datetime, names: Collection[str] | None = None) -> list[UnnamedKey]:
    """The keys that batches of all pipelines, or of those named, saw for the first time at `since` (UTC) or later.

    Each key of a pipeline is among them for one time only, the newest first. `UnnamedKey.told` says one in a sentence.
    """
    return ledger.unnamed_keys(names, since)


_MOST_KEYS = 20
_NOT_SEEN = "no run has looked at the service, or the service did not tell"


@dataclass(frozen=True)
class Limits:
    """Where a watch begins to tell; None: it never does.

    Attributes:
        behind: the oldest unread log, or if nothing was unread the last look, is older than this.
        dangling: no run has worked on a live batch for longer than this.
        expires: the service drops unread logs sooner than this.
    """

    behind: timedelta | None = None
    dangling: timedelta | None = None
    expires: timedelta | None = None


def findings(ledger: Ledger, name: str, limits: Limits) -> list[str]:
    """What is to be told of a pipeline now, a sentence each; empty if all is well. What is not known is told, too.

    A gap is told as long as its batch was committed within the last hour, a new key as long as it was first seen then.
    """
    view = next(iter(pipelines(ledger, [name])), None)
    if view is None:
        return [f"{name}: the ledger does not know it: no run of it has begun"]
    sentences = (*_needs(view), *_behind(view, limits), *_dangling(view, limits), *_expires(view, limits))
    return [
        f"{name}: {text}"
        for text in (
            *sentences,
            *_late(ledger, view),
            *_gaps(ledger, view),
            *_keys(ledger, view),
            *(str(hold) for hold in ledger.holds(view.name) if hold.is_told),
        )
    ]


def _needs(view: PipelineView) -> Iterator[str]:
    if view.need in (Need.LOOK, Need.EXPIRES):
        yield view.why


def _behind(view: PipelineView, limits: Limits) -> Iterator[str]:
    if limits.behind is None:
        return
    if view.lag is None or view.lag.seconds is None:
        yield f"how far it is behind is not known: {_NOT_SEEN}"
    elif view.lag.seconds > limits.behind.total_seconds():
        yield f"up to {span(view.lag.seconds)} behind, more than {_said(limits.behind)}"


def _dangling(view: PipelineView, limits: Limits) -> Iterator[str]:
    for live in view.live:
        silent = view.now - live.heartbeat
        if limits.dangling is not None and silent > limits.dangling:
            yield (
                f"no run has worked on batch {live.id}, which is {live.state.value}, for {_said(silent)}, more than "
                f"{_said(limits.dangling)}"
            )


def _expires(view: PipelineView, limits: Limits) -> Iterator[str]:
    if limits.expires is None:
        return
    if view.lag is None or view.lag.expires is None:
        yield f"when the service drops unread logs is not known: {_NOT_SEEN}"
    elif view.lag.expires < limits.expires.total_seconds():
        yield f"the service drops unread logs in {span(view.lag.expires)}, less than {_said(limits.expires)}"


def _late(ledger: Ledger, view: PipelineView) -> Iterator[str]:
    if sentence := late(ledger, ledger.history(view.name, NEWEST)):
        yield sentence


def _gaps(ledger: Ledger, view: PipelineView) -> Iterator[str]:
    lost: dict[str, int] = {}
    for transaction, gap in ledger.gaps(view.name, view.now - WINDOW):
        lost[transaction] = lost.get(transaction, 0) + len(gap)
    for transaction, groups in lost.items():
        yield f"batch {transaction} records {count(groups)} log groups as lost"


def _keys(ledger: Ledger, view: PipelineView) -> Iterator[str]:
    keys = unnamed(ledger, view.name)
    # The first that a rest column took are those with which the pipeline began, and are no news.
    began = min((key.first for key in keys), default=view.now)
    new = (key for key in keys if key.first >= view.now - WINDOW and (key.kept_in is None or key.first > began))
    for key in islice(new, _MOST_KEYS):
        yield f"a new key that no column names, {key.fate}: {key.counted}"


def _said(limit: timedelta) -> str:
    return span(limit.total_seconds())
