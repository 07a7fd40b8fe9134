#!/bin/sh
# Makes sure that the Debian/Ubuntu packages of groups are installed. Usage: cmake/packages.sh GROUP… with
# build, lint, fuzz, clients, browser.
# Installs with apt when it may (root, or sudo after asking on a terminal; AMK_YES=1 answers yes); else prints the exact command and fails.
# All output goes to stderr: stdout belongs to amk's JSON.
set -eu
wanted=""
for group in "$@"; do
case $group in
  # probe (a file that the package installs) : package
  build) wanted="$wanted /usr/bin/cmake:cmake /usr/bin/ninja:ninja-build /usr/bin/g++:g++ /usr/bin/flock:util-linux
    /usr/include/nlohmann/json.hpp:nlohmann-json3-dev /usr/include/spdlog/spdlog.h:libspdlog-dev /usr/include/sqlite3.h:libsqlite3-dev
    /usr/include/doctest/doctest.h:doctest-dev /usr/include/CLI/CLI.hpp:libcli11-dev
    /usr/include/boost/beast.hpp:libboost-dev /usr/include/tl/expected.hpp:libexpected-dev /usr/include/xxhash.h:libxxhash-dev" ;;
  lint) wanted="$wanted /usr/bin/clang-format:clang-format /usr/bin/clang-tidy:clang-tidy" ;;
  fuzz) wanted="$wanted /usr/bin/clang++:clang /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a:libclang-rt-dev" ;;
  clients) wanted="$wanted /usr/bin/node:nodejs /usr/bin/npm:npm" ;;
  browser) wanted="$wanted /usr/bin/chromium:chromium /usr/bin/node:nodejs /usr/bin/npm:npm" ;;
  *) echo "packages.sh: unknown group $group; accepted: build, lint, fuzz, clients, browser" >&2; exit 2 ;;
esac
done
# Whether a path or a pattern of paths (versions in names) exists.
exists() { for file in $1; do [ -e "$file" ] && return 0; done; return 1; }
missing=""
for pair in $wanted; do
  probe=${pair%%:*} package=${pair#*:}
  # A tool may also come from elsewhere on PATH; a header or library must be where the package puts it.
  case $probe in
    /usr/bin/*) command -v "${probe##*/}" >/dev/null 2>&1 || missing="$missing $package" ;;
    *) exists "$probe" || missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "amk needs these Debian/Ubuntu packages (or their equivalents) and finds no apt-get:$missing" >&2
  exit 3
fi
sudo=""
if [ "$(id -u)" -ne 0 ]; then
  if [ "${AMK_YES:-}" = 1 ] && command -v sudo >/dev/null 2>&1; then sudo="sudo -n"
  elif [ -t 0 ] && [ -t 2 ] && command -v sudo >/dev/null 2>&1; then
    printf 'amk needs these packages:%s\nInstall them with sudo apt-get? [y/N] ' "$missing" >&2
    read -r answer
    case $answer in y|Y|yes) sudo=sudo ;; *) sudo=no ;; esac
  else sudo=no
  fi
fi
if [ "$sudo" = no ]; then
  echo "amk needs packages that are not installed. Run:" >&2
  echo "  sudo apt-get update && sudo apt-get install -y$missing" >&2
  exit 3
fi
echo "amk: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # word splitting of the package list is meant
$sudo apt-get update -qq >&2 || echo "amk: apt-get update failed; trying the lists at hand" >&2
# shellcheck disable=SC2086
$sudo apt-get install -y -qq --no-install-recommends $missing </dev/null >&2 || {
  echo "amk: apt-get could not install:$missing" >&2
  exit 3
}
