#!/bin/sh
# Finds a Python that fits and hands over to setup.py. A name on PATH proves nothing: version managers leave shims
# that only print an error, so each candidate is run.
here=$(dirname "$0")

fits() {
    "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' >/dev/null 2>&1
}

if [ -n "$PYTHON" ]; then
    if fits "$PYTHON"; then
        exec "$PYTHON" "$here/setup.py"
    fi
    echo "PYTHON=$PYTHON is no Python 3.10, 3.11 or 3.12 that runs: set PYTHON to one that is, or unset it." >&2
    exit 1
fi
for candidate in "$here/../.venv/bin/python" python3.12 python3.11 python3.10 python3; do
    if fits "$candidate"; then
        exec "$candidate" "$here/setup.py"
    fi
done
echo "No Python 3.10, 3.11 or 3.12 was found: install one, or name one with make PYTHON=/path/to/python3.11." >&2
exit 1
