#!/bin/sh
# Usage: packages.sh PROGRAM=DEBIAN-PACKAGE...
# Makes sure that each program (or, with a slash in it, each file) is there. Missing
# Debian packages are installed as root; any other user is told what to install.
set -eu

missing=
for pair in "$@"; do
	thing=${pair%%=*} package=${pair#*=}
	case $thing in
	*/*) test -e "$thing" && continue ;;
	*) command -v "$thing" >/dev/null && continue ;;
	esac
	case " $missing " in
	*" $package "*) ;;
	*) missing="$missing $package" ;;
	esac
done
test -z "$missing" && exit 0

if test "$(id -u)" -ne 0; then
	echo "missing Debian packages:$missing; install them with: sudo apt-get install -y$missing" >&2
	exit 1
fi
if ! command -v apt-get >/dev/null; then
	echo "missing:$missing (names of Debian packages); install them with your package manager" >&2
	exit 1
fi
echo "installing Debian packages:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # the names are meant to be split
apt-get install -y -qq --no-install-recommends $missing >/dev/null
