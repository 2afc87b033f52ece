#!/usr/bin/env bash
# Installs what is missing, builds the library and trains a small network on Fashion-MNIST.
# Arguments go to the example: ./quickstart.sh --epochs 1, ./quickstart.sh --help
set -euo pipefail
cd "$(dirname "$0")"
tools/build.sh quickstart
exec build/bin/quickstart "$@"
