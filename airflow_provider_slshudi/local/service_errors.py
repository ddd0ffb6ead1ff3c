"""The service's errors: HTTP status, code and message.

https://www.alibabacloud.com/help/en/sls/developer-reference/error-codes and each operation's own page.
"""

from __future__ import annotations


class ServiceFault(Exception):
    """An answer other than 200. Attributes: status, code."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def parameter_invalid(message: str) -> ServiceFault:
    """An argument of the request is wrong."""
    return ServiceFault(400, "ParameterInvalid", message)


def project_not_exist(name: str) -> ServiceFault:
    """The host names no project."""
    return ServiceFault(404, "ProjectNotExist", f"The Project does not exist : {name}")


def logstore_not_exist(name: str) -> ServiceFault:
    """The path names no logstore of the project."""
    return ServiceFault(404, "LogStoreNotExist", f"logstore {name} does not exist")


def shard_not_exist(shard: int) -> ServiceFault:
    """The path names no shard of the logstore."""
    return ServiceFault(400, "ShardNotExist", f"Shard {shard} does not exist.")


def invalid_cursor(text: str) -> ServiceFault:
    """A text is no cursor, or names one beyond the shard's end."""
    return ServiceFault(400, "InvalidCursor", f"Cursor {text} is invalid.")


def token_expired() -> ServiceFault:
    """A temporary key's token is no longer valid."""
    return ServiceFault(401, "Unauthorized", "The security token you provided has expired.")


def too_large(most: int) -> ServiceFault:
    """A body has more than `most` bytes."""
    return ServiceFault(413, "PostBodyTooLarge", f"Body size must little than {most}.")
