#!/usr/bin/env bash
# Runs a command in a clean clone of HEAD on another Debian: tools/on_debian.sh trixie ./test.sh
# The system is a folder that debootstrap fills once. All mounts are made in a namespace of their own,
# which the kernel takes down with its last process, so none is left behind however a run ends.
set -euo pipefail

help() {
  cat <<'HELP'
Runs a command in a clean clone of the project's HEAD in a root of a Debian suite, as root:
  tools/on_debian.sh [options] <suite> <command> [argument ...]

  tools/on_debian.sh trixie ./test.sh                      all tests on Debian 13
  tools/on_debian.sh --keep-build trixie ./test.sh -R ir   builds only what has changed
  tools/on_debian.sh forky bash                            to look around

Suites are those of apt's mirror: bookworm (LibTorch 1.13), trixie (2.6), forky (2.14). The first run
makes the root and installs what tools/setup.sh lists, in some three minutes. The root is kept, with its
ccache; it takes 2 GB, and up to 8 GB with a build. The command sees a plain environment and no variable
of yours (name them: ... trixie env OMP_NUM_THREADS=1 ./test.sh); its exit code is the script's.

  --keep-build     keep build/ of the run before: the rest of the clone is as clean as without
  --fresh          make the root anew, as after an update of the suite
  -h, --help       this text

  EPL_DEBIAN_ROOTS=FOLDER   where roots are kept (${XDG_CACHE_HOME:-~/.cache}/epl/debian)
  EPL_DEBIAN_MIRROR=URL     where packages come from (the mirror that apt of this machine uses)
HELP
}

say() { echo "on_debian: $*" >&2; }
fail() {  # what cannot be, what to try
  say "$1"
  [ $# -lt 2 ] || echo "  try:      $2" >&2
  exit 1
}

# --- inside of the namespace: fill and enter the root --------------------------------------------

make_root() {
  local unfinished=$root.unfinished log=$root.log script=() include=()
  rm -rf --one-file-system "$unfinished"
  # A debootstrap that is older than the suite has no script of that name; Debian's are all one.
  [ -e "/usr/share/debootstrap/scripts/$suite" ] || script=(/usr/share/debootstrap/scripts/sid)
  [[ $mirror != https:* ]] || include=(--include=ca-certificates)
  say "making a root of $suite from $mirror: a minute or two (log: $log)"
  if ! debootstrap --variant=minbase "${include[@]}" "$suite" "$unfinished" "$mirror" "${script[@]}" \
      >"$log" 2>&1; then
    tail -n 5 "$log" "$unfinished/debootstrap/debootstrap.log" >&2 || true
    rm -rf --one-file-system "$unfinished"
    fail "cannot make a root of $suite" "the lines above; the network, the disk, an upgrade of debootstrap"
  fi
  apt-config dump | grep -E '^Acquire::[a-z]+::Proxy ' >"$unfinished/etc/apt/apt.conf.d/01proxy" || true
  rm -rf --one-file-system "$root"
  mv "$unfinished" "$root"  # only a whole root has this name
}

clone_head() {  # as a clean clone, but files that are still the same keep their time for Ninja
  local clone=$root/root/epl
  [ "$keep_build" = yes ] || rm -rf --one-file-system "$clone"
  git init -q "$clone"
  git -C "$clone" fetch -q --depth 1 "$project" HEAD
  git -C "$clone" -c advice.detachedHead=false checkout -q --force FETCH_HEAD
  git -C "$clone" clean -qffdx -e /build
}

in_root() {
  chroot "$root" /usr/bin/env -i HOME=/root USER=root LANG=C.UTF-8 TERM="${TERM:-dumb}" \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -c 'cd /root/epl && exec "$@"' bash "$@"
}

run_inside() {  # the command
  if [ "$fresh" = yes ] || [ ! -d "$root" ]; then make_root; fi
  clone_head
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/dev/shm"
  rm -rf --one-file-system "$root/tmp" && mkdir -m 1777 "$root/tmp"
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  in_root dpkg --configure -a  # where an earlier run was stopped
  in_root tools/setup.sh || fail "cannot install the packages in $root" "tools/on_debian.sh --fresh $suite ..."
  say "$suite, $(git -C "$root/root/epl" log -1 --format='%h (%s)'): $*"
  in_root "$@"
}

# --- outside: what is asked for, and whether it can be ---------------------------------------------

# Looks at all that can be looked at before minutes go into it.
prepare_to_make() {
  local free answer=0
  free=$(df --output=avail --block-size=1G "$roots" | tail -n 1)
  [ "$free" -ge 8 ] || fail "$roots has ${free// /} GB left, and a root with a build takes up to 8" \
    "EPL_DEBIAN_ROOTS=FOLDER on another disk"
  if ! command -v debootstrap >/dev/null; then
    say "installing debootstrap"
    { apt-get -qq update && apt-get -qq install -y debootstrap debian-archive-keyring; } >/dev/null ||
      fail "there is no debootstrap, and apt-get cannot install it" "apt-get install debootstrap"
  fi
  # The first of apt's repositories with the name that Debian's mirrors share.
  [ -n "$mirror" ] ||
    mirror=$(apt-get indextargets --format "\$(REPO_URI)" | grep -m 1 '/debian/$' || true)
  mirror=${mirror:-http://deb.debian.org/debian/}
  local http_of_apt='' https_of_apt=''
  eval "$(apt-config shell http_of_apt Acquire::http::Proxy https_of_apt Acquire::https::Proxy)"
  [ -z "$http_of_apt" ] || export http_proxy=$http_of_apt
  [ -z "$https_of_apt" ] || export https_proxy=$https_of_apt
  wget -q -t 2 -T 20 --spider "${mirror%/}/dists/$suite/Release" || answer=$?
  case $answer in
    0) ;;
    8) fail "$mirror has no suite \"$suite\"" "bookworm, trixie or forky" ;;
    *) fail "cannot reach $mirror" "EPL_DEBIAN_MIRROR=URL, or Acquire::http::Proxy in apt.conf" ;;
  esac
}

keep_build=no
fresh=no
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) help; exit 0 ;;
    --keep-build) keep_build=yes ;;
    --fresh) fresh=yes ;;
    -*) fail "no such option: $1" "$0 --help" ;;
    *) break ;;
  esac
  shift
done
[ $# -ge 2 ] || fail "a suite and a command are needed" "$0 trixie ./test.sh, or $0 --help"
suite=$1
project=$(cd "$(dirname "$0")/.." && pwd)
roots=${EPL_DEBIAN_ROOTS:-${XDG_CACHE_HOME:-$HOME/.cache}/epl/debian}
root=$roots/$suite
mirror=${EPL_DEBIAN_MIRROR:-}

[[ $suite =~ ^[a-z]+$ ]] || fail "\"$suite\" is no name of a suite" "bookworm, trixie or forky"
[ "$(id -u)" -eq 0 ] || fail "only root can make a root and enter it" "sudo $0 $*"
mkdir -p "$roots"
exec 9>"$root.lock"
flock -n 9 || { say "waiting for another run on $suite"; flock 9; }
if [ "$fresh" = yes ] || [ ! -d "$root" ]; then prepare_to_make; fi

changed=$(git -C "$project" status --porcelain | wc -l)
[ "$changed" -eq 0 ] || say "$changed changed or new files are not part of HEAD, so not of this run"

unshare --mount --pid true 2>/dev/null ||
  fail "this system does not let root mount anything" "a container with more rights (docker run --privileged)"
export -f say fail make_root clone_head in_root run_inside
export suite root mirror project keep_build fresh
# Whoever ends this script, by whichever signal, ends all of it: each of the two takes its child along.
setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child \
  bash -euo pipefail -c 'run_inside "$@"' bash "${@:2}"
