#!/usr/bin/env bash
# Installs what is missing, builds the library and trains a small ResNet on Fashion-MNIST, data parallel on two
# devices: about a minute on two cores. Arguments go to the example: ./quickstart.sh --steps 50, ./quickstart.sh --help
set -euo pipefail
cd "$(dirname "$0")"

# Answered before anything is installed or built: who asks may not want either.
for argument in "$@"; do
  [ "$argument" = --help ] || [ "$argument" = -h ] || continue
  cat <<'HELP'
Installs the Debian packages that are missing, builds EPL in build/ and trains a ResNet on Fashion-MNIST:
  ./quickstart.sh [options]          EPL_DEVICES=4 ./quickstart.sh: on four devices, not two

Options go to build/bin/resnet, whose --help lists them all; the most useful ones, with their defaults here:
  --steps 200            updates
  --batch 32             images in one step on each device
  --depth 18             layers: 18, 34, 50 or 101
  --image-size 32        side of what the network sees, in pixels
  --test-images 2000     images of the test at the end
  --data FOLDER          JPEG and PNG files, one sub-folder a class, in place of Fashion-MNIST
  --checkpoint FILE      read at the beginning, if it exists, and written after each epoch
  --plan                 prints what EPL made of the step
HELP
  exit 0
done

# epl-launch, epl-plan and epl-checkpoint as well: `cmake --install build` and the next lines that a user tries need them.
tools/build.sh resnet epl-launch epl-plan epl-checkpoint
export EPL_DEVICES=${EPL_DEVICES:-2}
exec build/bin/resnet --depth 18 --image-size 32 --batch 32 --steps 200 --test-images 2000 "$@"
