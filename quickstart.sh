#!/usr/bin/env bash
# Installs what is missing, builds the library and trains a small ResNet on Fashion-MNIST, data parallel on two
# devices: about a minute on two cores. Arguments go to the example: ./quickstart.sh --steps 50, ./quickstart.sh --help
set -euo pipefail
cd "$(dirname "$0")"
tools/build.sh resnet
export EPL_DEVICES=${EPL_DEVICES:-2}
exec build/bin/resnet --depth 18 --image-size 32 --batch 32 --steps 200 --test-images 2000 "$@"
