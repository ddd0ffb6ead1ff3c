"""A user id without a name, as OpenShift gives to containers: Java finds it no home, and Hadoop refuses to log it in.

So it gets both from us: a name for Spark, a home for Java, and in the driver's JVM a login without the system's help.
"""

from __future__ import annotations

import os
import pwd
import shlex
from pathlib import Path
from typing import Any


def is_nameless() -> bool:
    """Whether the system knows no name of this process's user."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return True
    return False


def variables(home: Path) -> dict[str, str]:
    """What a process that starts Spark needs in its environment; nothing for a user with a name.

    `home` is used where HOME is not set.
    """
    if not is_nameless():
        return {}
    options = shlex.split(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    if not any(option.startswith("-Duser.home=") for option in options):
        options.append(f"-Duser.home={os.environ.get('HOME') or home}")
    return {"SPARK_USER": _name(), "SPARK_SUBMIT_OPTS": shlex.join(options)}


def log_in(jvm: Any) -> None:
    """Logs a nameless user in, in a driver's JVM, before anything there asks Hadoop who it is."""
    if is_nameless():
        users = jvm.org.apache.hadoop.security.UserGroupInformation
        users.setLoginUser(users.createRemoteUser(_name()))


def _name() -> str:
    """The name by which others than this machine's system know the user."""
    return os.environ.get("HADOOP_USER_NAME") or os.environ.get("SPARK_USER") or str(os.getuid())
