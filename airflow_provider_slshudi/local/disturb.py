"""Carries out the fault that a plan chose for a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from airflow_provider_slshudi.local.call import Call
from airflow_provider_slshudi.local.faultplan import Kind, Rule
from airflow_provider_slshudi.local.logs import pulled
from airflow_provider_slshudi.local.protocol import TRANSPORT
from airflow_provider_slshudi.local.service_errors import ServiceFault, shard_not_exist, token_expired


class _Cut(Response):
    """Sends half of `whole`, or nothing of it, and then ends the connection."""

    def __init__(self, whole: Response, half: bool) -> None:
        super().__init__(headers=dict(whole.headers))
        self._whole, self._half = whole, half

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytes(self._whole.body)
        if self._half:
            self.headers["content-length"] = str(max(len(body), 1))
            await send({"type": "http.response.start", "status": self._whole.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
        transport = scope["extensions"][TRANSPORT]["of"]
        if self._half:
            transport.close()  # after what was written
        else:
            transport.abort()
        while (await receive())["type"] != "http.disconnect":
            pass


async def disturbed(fault: tuple[Kind, Rule], call: Call, respond: Callable[[], Response]) -> Response:
    """The answer to `call`, which `respond` carries out, disturbed by `fault`. Raises the service's faults."""
    kind, rule = fault
    _refuse(kind, rule, call)
    if kind == "slow":
        await asyncio.sleep(rule.seconds)
    if kind == "drop":
        return _Cut(Response(), half=False)
    response = respond()
    if kind in ("lose", "cut"):
        return _Cut(response, half=kind == "cut")
    if kind == "empty":
        return pulled(memoryview(b""), 0, call.cursor("cursor"), "")
    if kind in ("truncate", "corrupt") and response.body:
        return _spoiled(response, kind)
    return response


def _refuse(kind: Kind, rule: Rule, call: Call) -> None:
    if kind == "error":
        raise ServiceFault(rule.status, rule.code, "as the fault plan says")
    if kind == "quota":
        word = "Write" if call.path.get("way") else "Read"
        if "shard" in call.path or "way" in call.path:
            message = f"shard {word.lower()} qps/bytes exceed quota limits"
            raise ServiceFault(403, f"Shard{word}QuotaExceed", message)
        raise ServiceFault(403, f"{word}QuotaExceed", f"Project {word.lower()} quota exceed: qps")
    if kind == "expired_token":
        raise token_expired()
    if kind == "deleted_shard":
        raise shard_not_exist(call.shard() if "shard" in call.path else 0)


def _spoiled(response: Response, kind: Kind) -> Response:
    body = bytearray(response.body)
    if kind == "truncate":
        del body[-max(1, len(body) // 3) :]
    else:
        # Bytes that no decoder takes: the protocol has no checksum, so every client would believe other changes.
        body[:8] = b"\xff" * len(body[:8])
    headers = {name: value for name, value in response.headers.items() if name != "content-length"}
    return Response(bytes(body), response.status_code, headers)
