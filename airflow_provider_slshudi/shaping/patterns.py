"""Ready patterns for lines that many programs write: what `log_field`, `pair` and `csv_field` find in them."""

from __future__ import annotations

import re

_TEXT = r'"((?:[^"\\]|\\.)*)"'
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    # https://httpd.apache.org/docs/2.4/logs.html, https://nginx.org/en/docs/http/ngx_http_log_module.html
    "access": (
        r'^(\S+) (\S+) (\S+) \[([^\]]+)\] "(?:([A-Z]+) (\S+)(?: (HTTP/[0-9.]+))?|(?:[^"\\]|\\.)*)" '
        r"([0-9]{3}) ([0-9]+|-)"
        rf"(?: {_TEXT} {_TEXT})?",
        ("address", "ident", "user", "time", "method", "path", "protocol", "status", "bytes", "referer", "agent"),
    ),
    # https://kubernetes.io/docs/concepts/cluster-administration/logging/ (the runtimes' format, CRI)
    "container": (r"(?s)^(\S+) (stdout|stderr) ([FP]) (.*)$", ("time", "stream", "tag", "message")),
    # RFC 3164
    "syslog": (
        r"(?s)^(?:<([0-9]{1,3})>)?([A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8}) (\S+) ([^\s:\[]+)(?:\[([0-9]+)\])?: ?(.*)$",
        ("priority", "time", "host", "program", "pid", "message"),
    ),
    # RFC 5424
    "syslog_5424": (
        r"(?s)^<([0-9]{1,3})>1 (\S+) (\S+) (\S+) (\S+) (\S+) "
        r'(-|(?:\[(?:[^\]"\\]|\\.|"(?:[^"\\]|\\.)*")*\])+)(?: (.*))?$',
        ("priority", "time", "host", "program", "pid", "id", "data", "message"),
    ),
    "java_trace": (
        r'^(?:Exception in thread "([^"]*)" )?([A-Za-z_$][\w$]*(?:\.[\w$]+)+)(?:: ([^\n]*))?\n\s+at ([^\n(]+)',
        ("thread", "class", "message", "place"),
    ),
    "python_trace": (
        r"(?s)^Traceback \(most recent call last\):\n"
        r'.*File "([^"]+)", line ([0-9]+)[^\n]*\n.*?\n([A-Za-z_][\w.]*)(?:: ([^\n]*))?\s*$',
        ("file", "line", "class", "message"),
    ),
}
"""By the name of a format: a pattern (RE2), and the names of its groups."""
_MOST_FIELDS = 200


def group_of(format_: str, field: str) -> tuple[str, int]:
    """The pattern of a format and the number of a field's group; raises ValueError."""
    if format_ not in FORMATS:
        raise ValueError(f"log_field: {format_!r} is none of {', '.join(FORMATS)}")
    pattern, fields = FORMATS[format_]
    if field not in fields:
        raise ValueError(f"log_field: {format_} has no {field!r}; it has {', '.join(fields)}")
    return pattern, fields.index(field) + 1


def pair_pattern(key: str) -> str:
    """The pattern of `key=value` in a line; group 1 is a value within quotes, group 2 one without."""
    if not key:
        raise ValueError("pair: the key has characters")
    return rf"(?:^|[\s,;&{{\[(]){re.escape(key)}=(?:{_TEXT}|([^\s,;&\])}}]*))"


def csv_pattern(number: int) -> str:
    """The pattern of a line's field (RFC 4180), counted from 1; groups as in `pair_pattern`."""
    if not 1 <= number <= _MOST_FIELDS:
        raise ValueError(f"csv_field: fields count from 1 to {_MOST_FIELDS}")
    quoted = r'"((?:[^"]|"")*)"'
    before = rf'^(?:(?:"(?:[^"]|"")*"|[^",\r\n]*),){{{number - 1}}}' if number > 1 else "^"
    return rf'{before}(?:{quoted}|([^",\r\n]*))(?:,|\r?\n?$)'
