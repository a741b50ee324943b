#!/usr/bin/env bash
# Every test: those of core, and beside them all others, whose output comes when both have ended. Most tests use one core.
# Usage: all_tests.sh PYTHON
set -uo pipefail
python=$1
log=$(mktemp)
"$python" -m pytest -p no:cacheprovider plugins/cpu/tests conformance_tests/tests conformance_tests/fakechip/tests >"$log" 2>&1 &
others=$!
trap 'kill $others 2>/dev/null; rm -f "$log"' EXIT
failed=0
"$python" -m pytest core/tests || failed=1
echo '==> The tests of plugins and conformance, which ran beside these' >&2
wait $others || failed=1
cat "$log"
exit $failed
