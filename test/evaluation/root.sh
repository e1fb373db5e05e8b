#!/bin/sh
# Usage: root.sh ROOT.tar
# Builds the root file system of the evaluation's workloads out of Debian packages: extracted, so that no package
# starts anything, and this machine is not changed. ROOT.tar.packages has the versions. It needs root.
set -eu

packages='nginx-light redis-server postgresql-15 xz-utils gcc-12 dash'
mkdir -p "$(dirname "$1")"
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

mmdebstrap --quiet --variant=extract --format=directory --include="$(echo "$packages" | tr ' ' ,)" bookworm "$tree"

# initdb needs a shell, and a name for its user.
mkdir -p "$tree/data" "$tree/tmp"
printf 'root:x:0:0::/root:/bin/sh\nnonroot:x:65532:65532::/data:/bin/sh\n' >"$tree/etc/passwd"
test -e "$tree/bin/sh" || ln -s dash "$tree/bin/sh"
for p in $packages; do
	zcat "$tree/usr/share/doc/$p/changelog.Debian.gz" | sed -n '1s/^[^ ]* (\([^)]*\)).*/'"$p"' \1/p'
done >"$1.packages"
# Nothing uses LLVM, a third of all bytes: JIT compilation is off. Nor does anything link.
rm -rf "$tree"/usr/lib/*/libLLVM* "$tree"/usr/lib/*/libz3* "$tree"/usr/lib/gcc/*/*/lto* "$tree"/usr/bin/*lto-dump* "$tree"/usr/lib/postgresql/*/lib/bitcode \
	"$tree/usr/share/i18n" "$tree/usr/share/doc" "$tree/usr/share/man" "$tree/var/cache" "$tree/var/lib/apt"
tar -C "$tree" --numeric-owner -cf "$1.new" .
mv "$1.new" "$1"
