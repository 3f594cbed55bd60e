#!/bin/sh
# The environment /opt/halcyon of an image:
#
#     environment.sh install LOCK   creates it with the packages of a lock file, whose hashes pip checks
#     environment.sh compile        drops the packages' own tests, and makes byte code
#
# Byte code is made here, because the root file system is read-only where it runs. Files of an image do not change, so it need not be
# checked. All of it is made (-f), because pip leaves some of its own, with times in it.
set -eu
case $1 in
  install)
    python3 -m venv /opt/pip
    python3 -m venv --without-pip /opt/halcyon
    /opt/pip/bin/pip --python /opt/halcyon/bin/python install -q --no-cache-dir --disable-pip-version-check \
      --no-compile --no-deps --require-hashes --only-binary=:all: -r "$2"
    ;;
  compile)
    cd /opt/halcyon/lib/python3*/site-packages
    find . -type d -name tests -prune -exec rm -r {} +
    /opt/halcyon/bin/python -m compileall -q -f -j 0 --invalidation-mode unchecked-hash .
    ;;
esac
