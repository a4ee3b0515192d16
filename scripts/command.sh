# Find the command kafkapy, for the short names of `kafkapy log` in scripts/. Sourced by sh.

PATH="$(dirname "$0")/../.venv/bin:$PATH"
if ! command -v kafkapy >/dev/null 2>&1; then
    checkout="$(cd "$(dirname "$0")/.." && pwd)"
    echo "$0: kafkapy is not installed: run python3 -m venv .venv && .venv/bin/pip install -e . in $checkout" >&2
    exit 1
fi
