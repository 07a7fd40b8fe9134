#!/bin/sh
# Configures and builds one preset. Usage: cmake/build.sh PRESET [TARGET…]   (one build at a time per preset; others wait)
set -eu
preset=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
"$root/cmake/packages.sh" build
dir=$root/build/$preset
mkdir -p "$dir"
exec 9>"$dir/.lock"
flock 9
started=$dir/.started
: >"$started"
log=$dir/build.log
jobs=${AMK_JOBS:-$(nproc)}
echo "amk: building ($preset, $jobs jobs; log: build/$preset/build.log)" >&2
run() {
  if ! "$@" >>"$log" 2>&1; then
    echo "amk: build failed; the end of build/$preset/build.log:" >&2
    tail -n 40 "$log" >&2
    exit 3
  fi
}
: >"$log"
cd "$root"
# Several sources a compilation: a clean build takes half the time, since most of it is parsing the same headers. For work on one file
# configure the preset by hand (cmake --preset release -B build/dev), which builds source by source.
run cmake --preset "$preset" -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=8 ${AMK_CMAKE_ARGS:-}
if [ $# -gt 0 ]; then set -- --target "$@"; fi
run cmake --build "$dir" --parallel "$jobs" "$@"
# The stamp carries the time at which the build started: an edit made meanwhile still counts as newer.
mv "$started" "$dir/.built"
