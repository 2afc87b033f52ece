#!/usr/bin/env bash
# Installs the Debian packages that the build uses: those that are missing, as root or by sudo.
# With nothing missing it returns at once.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache          # the build
  libtorch-dev libgloo-dev              # LibTorch, and the headers that its c10d includes
  libopenblas0-openmp                   # a BLAS that shares OpenMP's threads with LibTorch
  libhwloc-dev                          # which cores there are
  nlohmann-json3-dev libcli11-dev       # JSON and command lines
  libgtest-dev libgmock-dev python3     # the tests
  zlib1g-dev dataset-fashion-mnist      # the examples' data
  libpng-dev libturbojpeg0-dev          # pictures of the ResNet example
  libutf8proc-dev                       # texts of the BERT example
)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: this is not Debian, so nothing is installed; the build needs: ${packages[*]}" >&2
  exit 0
fi

installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
missing=()
for package in "${packages[@]}"; do
  grep -qxF "$package installed" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: cannot install packages: not root, and there is no sudo" >&2
    echo "  try:      as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

# Waits for another apt (a fresh machine often runs one) instead of failing.
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}

install_missing() { apt install -y --no-install-recommends "${missing[@]}" >/dev/null; }

echo "setup: installing ${missing[*]}"
# The lists of packages may be absent or old: they are fetched only where installing fails.
install_missing 2>/dev/null || { apt update && install_missing; }
