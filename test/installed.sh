# Sourced by tests of an installed copy, with the arguments SOURCE_DIR BUILD_DIR PREFIX: installs into a temporary
# folder, $root, which goes away in the end; $root/prefix is the copy, $libdir its libraries.
set -eu
source=$1 build=$2 prefix=$3
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# Meson sets it for tests; the installed copy must do without.
unset LD_LIBRARY_PATH
passed=0 failed=0

# check WHAT COMMAND...: one case; the log of a failed one is shown.
check() {
  what=$1
  shift
  if "$@" >"$root/log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $what: $*"
    tail -30 "$root/log"
  fi
}

meson install -C "$build" --no-rebuild --quiet --destdir "$root/stage" >"$root/log" 2>&1 || {
  cat "$root/log"
  exit 1
}
# Moved, so that nothing works by chance: no path to the source tree or to the real prefix is left.
mv "$root/stage$prefix" "$root/prefix"
libdir=$(dirname "$(find "$root/prefix" -name libconvprim.a)")
# Builds that were configured otherwise name their prefix.
grep -q pcfiledir "$libdir/pkgconfig/convprim.pc" || sed -i "s|^prefix=.*|prefix=$root/prefix|" "$libdir"/pkgconfig/*.pc
export PKG_CONFIG_PATH="$libdir/pkgconfig"
