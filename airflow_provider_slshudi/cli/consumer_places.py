"""`slshudi consumers`: how far the consumers of a table are, and what an operator decides of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_provider_slshudi.cli.common import (
    Commands,
    add_json,
    add_pipeline,
    print_json,
    print_table,
    require_known,
    tell_unread,
    work_of,
)
from airflow_provider_slshudi.cli.repair import user
from airflow_provider_slshudi.handover.names import FORGET_CONSUMER, MOVE_CONSUMER

if TYPE_CHECKING:
    from airflow_provider_slshudi.ledger.records import ConsumerLag
    from airflow_provider_slshudi.transaction.context import Work

_COMMAND, _SHOW = "consumers", "show"
_ACTIONS = (_SHOW, "move", "forget")


def with_action(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, where `slshudi consumers [NAME]` is short for `slshudi consumers show [NAME]`."""
    words = [*arguments]
    if words[:1] == [_COMMAND] and not {*words[1:2]} & {*_ACTIONS, "-h", "--help"}:
        words.insert(1, _SHOW)
    return words


def add_to(commands: Commands) -> None:
    """Adds the commands."""
    consumers = commands.add_parser(
        _COMMAND,
        help="how far the consumers of a table are; sets their places",
        description="`slshudi consumers [NAME]` is short for `slshudi consumers show [NAME]`.",
    )
    actions = consumers.add_subparsers(required=True, metavar="ACTION")
    show = actions.add_parser(_SHOW, help="what each consumer has confirmed, lacks, and has taken")
    show.add_argument("pipeline", nargs="?", metavar="NAME", help="only of this pipeline, by its name in the ledger")
    show.set_defaults(run=_show)

    move = actions.add_parser(
        "move",
        help="set a consumer's place: it is given what follows",
        description="What a run has taken and not confirmed is not its any more. A place that is set back gives a "
        "consumer commits again, under keys that it may have seen.",
    )
    forget = actions.add_parser("forget", help="remove a consumer: cleaning and archival do not wait for it any more")
    for command in (move, forget):
        add_pipeline(command)
        command.add_argument("consumer", metavar="CONSUMER", help="its name, as `slshudi consumers` shows it")
    move.add_argument(
        "--to",
        required=True,
        type=_place,
        metavar="N|begin|end",
        help="the place after which it goes on: a number, `begin` for all that there is, `end` for what is to come",
    )
    for command in (move, forget):
        command.add_argument("--reason", required=True, help="why; stays in the pipeline's history")
    move.set_defaults(run=_move)
    forget.set_defaults(run=_forget)
    for command in (show, move, forget):
        add_json(command)


def _place(text: str) -> int | None:
    """The place that a text names; None for the newest."""
    if text == "end":
        return None
    if text == "begin":
        return 0
    if text.isascii() and text.isdigit():
        return int(text)
    raise argparse.ArgumentTypeError(f"{text[:20]!r} is no place: expected a number, begin or end")


def _show(options: argparse.Namespace) -> int:
    from airflow_provider_slshudi.hooks.ledger import each_ledger

    name = options.pipeline
    looks, errors = each_ledger(lambda ledger: (ledger.pipelines(), ledger.lags(name)))
    tell_unread(errors)
    if name is not None:
        require_known([name], {item.name for pipelines, _ in looks for item in pipelines}, errors, _COMMAND)
    lags = [lag for _, lags in looks for lag in lags]
    if options.json:
        print_json(options.out, [_as_dict(lag) for lag in lags])
    else:
        columns = ("pipeline", "consumer", "of", "confirmed", "behind", "since (UTC)", "taken", "taken by", "hold")
        print_table(options.out, "Consumers", columns, map(_row, lags))
    return 3 if errors else 0


def _row(lag: ConsumerLag) -> tuple[object, ...]:
    from airflow_provider_slshudi.views.words import count, span

    item = lag.consumer
    taken = "" if item.taken is None else f"to {item.taken}"
    named = item.pipeline, item.name, item.of, item.confirmed
    return (*named, count(lag.behind), lag.since, taken, _taker(lag), span(item.hold))


def _taker(lag: ConsumerLag) -> str:
    """The run that has taken what is not confirmed, as other commands name runs."""
    return "" if lag.consumer.taken is None else "/".join(lag.consumer.run[1:])


def _as_dict(lag: ConsumerLag) -> dict[str, Any]:
    fields = asdict(lag.consumer)
    del fields["nonce"]
    return {**fields, "of": lag.consumer.of.value, "behind": lag.behind, "since": lag.since}


def _move(options: argparse.Namespace) -> int:
    def move(work: Work) -> str:
        moved = work.ledger.move(work.pipeline.name, options.consumer, options.to)
        return f"consumer {moved.name} goes on after {moved.confirmed}"

    return _act(options, MOVE_CONSUMER, move)


def _forget(options: argparse.Namespace) -> int:
    def forget(work: Work) -> str:
        work.ledger.forget(work.pipeline.name, options.consumer)
        return f"consumer {options.consumer} is forgotten"

    return _act(options, FORGET_CONSUMER, forget)


def _act(options: argparse.Namespace, act: str, change: Callable[[Work], str]) -> int:
    work = work_of(options.pipeline)
    with _audited(work, act, options.reason) as result:
        done = change(work)
        result.append(done)
    if options.json:
        print_json(options.out, {"pipeline": work.pipeline.name, "consumer": options.consumer, "done": done})
    else:
        print(f"{work.pipeline.name}: {done}", file=options.out)
    return 0


def _audited(work: Work, act: str, reason: str) -> AbstractContextManager[list[str]]:
    return work.ledger.audited(work.pipeline.name, act, user(), reason, str(work.run))
