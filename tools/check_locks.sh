#!/usr/bin/env bash
# Lets clang read what classes say of their mutexes (src/base/mutex.h), and prints each use of what a
# mutex guards without that mutex; fails where there is one. Checked is every source of src/ that
# includes base/mutex.h, by itself or by another header, and tests that have a mutex of their own.
#
#   tools/check_locks.sh [flags for clang, where LibTorch is not Debian's]
#
# The files of a folder are one to clang, as with EPL_UNITY: most of the time goes into LibTorch's headers.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang++ >/dev/null; then
  echo "check_locks: nothing is checked: there is no clang++ here (Debian: apt-get install clang)"
  exit 0
fi
[ $# -gt 0 ] || set -- -std=c++17 -isystem /usr/include/torch/csrc/api/include

# The files of this name that include one of the headers that are read, from src/ on.
includers() { sed 's/.*/#include "&"/' | grep -rlFf - --include="$1" src | sed 's|^src/||'; }

headers=base/mutex.h
while more=$({ echo "$headers"; includers '*.h' <<<"$headers"; } | sort -u); [ "$more" != "$headers" ]; do
  headers=$more
done
sources=$({
  includers '*.cc' <<<"$headers" | grep -v '_test\.cc$'
  for tests in '*_test.cc' 'test_*.h'; do includers "$tests" <<<base/mutex.h; done
} | sort)

check_folder() {
  local folder=$1
  shift
  grep "^$folder/" <<<"$sources" | sed 's/.*/#include "&"/' |
    clang++ -x c++ -fsyntax-only -Wno-everything -Wthread-safety -Wthread-safety-beta \
      -Werror=thread-safety -Werror=thread-safety-beta -DNDEBUG -Isrc -Iinclude "$@" -
}
export -f check_folder
export sources
cut -d/ -f1 <<<"$sources" | uniq | xargs -P "$(nproc)" -I{} bash -c 'check_folder "$@"' _ {} "$@"
echo "check_locks: $(wc -l <<<"$sources") files, no fault"
