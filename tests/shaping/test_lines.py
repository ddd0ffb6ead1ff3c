"""Ready patterns over lines as programs write them; the samples stand in the pages that `shaping.patterns` names."""

from __future__ import annotations

import pytest

from airflow_provider_slshudi.rows.trial import Fate, fates
from airflow_provider_slshudi.shaping.patterns import FORMATS
from tests.shaping.test_inputs import column, pipeline

APACHE = '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326'
COMBINED = f'{APACHE} "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"'
BROKEN = r'10.0.0.1 - - [10/Oct/2000:13:55:36 +0000] "\x16\x03\x01\"" 400 -'
CONTAINER = "2016-10-06T00:17:09.669794202Z stdout F The content of the log entry 1"
SYSLOG = "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8"
WITH_PID = "Feb  5 17:32:18 10.0.0.99 sshd[4711]: Use the BFG!"
DATA = '[exampleSDID@32473 iut="3" eventSource="Application" eventID="1011"][examplePriority@32473 class="high"]'
SYSLOG_5424 = (
    f"<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 {DATA} An application event log entry"
)
JAVA = (
    'Exception in thread "main" java.lang.NullPointerException: no name\n'
    "\tat com.example.myproject.Book.getTitle(Book.java:16)\n\tat com.example.myproject.Author.main(Author.java:25)"
)
PYTHON = (
    'Traceback (most recent call last):\n  File "/app/main.py", line 3, in <module>\n    f()\n'
    '  File "/app/lib.py", line 7, in f\n    return 1 / 0\n           ~~^~~\nZeroDivisionError: division by zero\n'
)


def found(expr: str, text: str | None) -> Fate:
    (fate,) = fates(pipeline(column("string", expr)), [{"k": text}])
    return fate


ACCESS = "127.0.0.1 - frank 10/Oct/2000:13:55:36_-0700 GET /apache_pb.gif HTTP/1.0 200 2326"
FIELDS: list[tuple[str, str, str]] = [
    ("access", APACHE, f"{ACCESS} NULL NULL"),
    ("access", COMBINED, f"{ACCESS} http://www.example.com/start.html Mozilla/4.08_[en]_(Win98;_I_;Nav)"),
    ("access", BROKEN, "10.0.0.1 - - 10/Oct/2000:13:55:36_+0000 NULL NULL NULL 400 - NULL NULL"),
    ("container", CONTAINER, "2016-10-06T00:17:09.669794202Z stdout F The_content_of_the_log_entry_1"),
    ("syslog", SYSLOG, "34 Oct_11_22:14:15 mymachine su NULL 'su_root'_failed_for_lonvick_on_/dev/pts/8"),
    ("syslog", WITH_PID, "NULL Feb__5_17:32:18 10.0.0.99 sshd 4711 Use_the_BFG!"),
    (
        "syslog_5424",
        SYSLOG_5424,
        f"165 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 {DATA.replace(' ', '_')} "
        "An_application_event_log_entry",
    ),
    ("java_trace", JAVA, "main java.lang.NullPointerException no_name com.example.myproject.Book.getTitle"),
    ("python_trace", PYTHON, "/app/lib.py 7 ZeroDivisionError division_by_zero"),
]
"""A format, a line, and the fields as text with `_` for their blanks."""


@pytest.mark.parametrize(("format_", "line", "values"), FIELDS)
def test_a_line_has_the_fields_of_its_format(format_: str, line: str, values: str) -> None:
    fields = FORMATS[format_][1]
    columns = [{"name": f"f_{name}", "expr": f"log_field(key('k'), '{format_}', '{name}')"} for name in fields]
    fate, other = fates(pipeline(*columns), [{"k": line}, {"k": "something else"}])
    written = [str(fate.columns[f"f_{name}"] or "NULL").replace(" ", "_") for name in fields]
    assert " ".join(written) == values and not fate.misfits
    assert len(other.misfits) == min(len(fields), 3)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ('level=info msg="two words, \\"quoted\\"" n=5', "level", "info"),
        ('level=info msg="two words, \\"quoted\\"" n=5', "msg", 'two words, \\"quoted\\"'),
        ("level=info n=5", "n", "5"),
        ("sublevel=x,level=y", "level", "y"),
        ("a=1&b=2", "b", "2"),
        ("{a=1, b=2}", "b", "2"),
        ("a=", "a", ""),
        ("nothing", "a", None),
        (None, "a", None),
    ],
)
def test_a_pair_of_a_line(line: str | None, key: str, value: str | None) -> None:
    fate = found(f"pair(key('k'), '{key}')", line)
    assert fate.columns["e"] == value and not fate.misfits


@pytest.mark.parametrize(
    ("number", "value"), [(1, "aaa"), (2, 'b"b,b'), (3, ""), (4, "中文"), (5, "x\ny"), (6, "last"), (7, None)]
)
def test_a_field_of_comma_separated_values(number: int, value: str | None) -> None:
    fate = found(f"csv_field(key('k'), {number})", 'aaa,"b""b,b",,中文,"x\ny",last\r\n')
    assert fate.columns["e"] == value and bool(fate.misfits) == (value is None)


@pytest.mark.parametrize(
    "expr",
    [
        "log_field(s, 'acess', 'status')",
        "log_field(s, 'access', 'code')",
        "log_field(s, 'access')",
        "log_field(s, s, s)",
        "csv_field(s, 0)",
        "csv_field(s, 201)",
        "pair(s, '')",
    ],
)
def test_what_there_is_not_is_told(expr: str) -> None:
    with pytest.raises(ValueError, match=r"is none of access|has no 'code'; it has|takes a text|count from|characters"):
        pipeline(column("string", expr))


def test_the_longest_line_of_comma_separated_values() -> None:
    fate = found("csv_field(key('k'), 200)", ",".join(map(str, range(1, 300))))
    assert fate.columns["e"] == "200"
