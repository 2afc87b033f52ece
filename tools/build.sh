#!/usr/bin/env bash
# Brings build/ up to date: tools/build.sh [target ...]; without a target it builds everything.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh
# Ninja configures again by itself where a CMake file has changed.
[ -f build/build.ninja ] || cmake -S . -B build -G Ninja

# A file that includes LibTorch takes up to 2 GB to compile, so memory bounds the jobs as cores do.
jobs=$(nproc)
by_memory=$(awk '/^MemAvailable:/ { print int($2 / 2000000) }' /proc/meminfo)
[ "$by_memory" -ge "$jobs" ] || jobs=$((by_memory > 0 ? by_memory : 1))

targets=()
[ $# -eq 0 ] || targets=(--target "$@")
cmake --build build --parallel "$jobs" "${targets[@]}"
