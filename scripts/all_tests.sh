#!/usr/bin/env bash
# Every test, in two runs side by side that take about as long: those of core, and beside them all others with those of
# the repository, whose output comes when both have ended. Most tests use one core.
# Usage: all_tests.sh PYTHON
set -uo pipefail
python=$1
beside=(core/tests/repo)
# NumPy and torch would each start a thread for every core, and there are two of each.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
log=$(mktemp)
"$python" -m pytest -p no:cacheprovider plugins/cpu/tests conformance_tests/tests conformance_tests/fakechip/tests \
  "${beside[@]}" >"$log" 2>&1 &
others=$!
trap 'kill $others 2>/dev/null; rm -f "$log"' EXIT
failed=0
"$python" -m pytest core/tests "${beside[@]/#/--ignore=}" || failed=1
echo '==> The tests of plugins and conformance, which ran beside these' >&2
wait $others || failed=1
cat "$log"
exit $failed
