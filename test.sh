#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests.
# Arguments go to ctest: ./test.sh -R capture
set -uo pipefail
cd "$(dirname "$0")" || exit
tools/build.sh || { code=$?; echo "test.sh: the build failed"; exit $code; }

# Two tests at a time, so each computes on one thread: threads that spin for each other's core
# would cost more than they give.
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} ctest --test-dir build --output-on-failure -j 2 "$@"
code=$?
if [ $code -eq 0 ]; then echo "test.sh: all tests passed"; else echo "test.sh: tests failed"; fi
exit $code
