"""Keeps a token of Airflow in a file for Prometheus: `token.py URL FILE [GROUP]`. It is renewed long before it ends.

The file is for its owner and, if one is given, for the members of a group, by its number.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

RENEWED_SECONDS = 3600

url, target = sys.argv[1].rstrip("/"), Path(sys.argv[2])
while True:
    with urllib.request.urlopen(f"{url}/auth/token", timeout=30) as answer:  # noqa: S310 - the address of one's own Airflow
        token = json.load(answer)["access_token"]
    made = target.with_suffix(".new")
    made.unlink(missing_ok=True)
    made.touch(mode=0o600)
    if sys.argv[3:]:
        os.chown(made, -1, int(sys.argv[3]))
        made.chmod(0o640)
    made.write_text(token, encoding="utf-8")
    made.rename(target)
    print(f"{target} is new", flush=True)
    time.sleep(RENEWED_SECONDS)
