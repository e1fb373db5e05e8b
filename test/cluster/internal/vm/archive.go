package vm

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// file is one file of the initial file system.
type file struct {
	mode uint32 // type and permissions, as stat(2) has them
	data []byte
	dev  [2]uint32 // of a device
}

const (
	modeDir     = 0o040755
	modeFile    = 0o100644
	modeProgram = 0o100755
	modeDevice  = 0o020600
)

// archive is a cpio archive in the "new ASCII" format of the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst. Folders above the
// files are made; paths are absolute.
func archive(files map[string]file) []byte {
	all := maps.Clone(files)
	for p := range files {
		for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
			all[dir] = file{mode: modeDir}
		}
	}
	var buf bytes.Buffer
	for n, p := range slices.Sorted(maps.Keys(all)) { // a folder sorts before what is in it
		entry(&buf, n+1, strings.TrimPrefix(p, "/"), all[p])
	}
	entry(&buf, 0, "TRAILER!!!", file{})
	return buf.Bytes()
}

func entry(buf *bytes.Buffer, inode int, name string, f file) {
	fmt.Fprintf(buf, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		inode, f.mode, 0, 0, 1, 0, len(f.data), 0, 0, f.dev[0], f.dev[1], len(name)+1, 0)
	buf.WriteString(name)
	buf.WriteByte(0)
	pad(buf)
	buf.Write(f.data)
	pad(buf)
}

func pad(buf *bytes.Buffer) {
	for buf.Len()%4 != 0 {
		buf.WriteByte(0)
	}
}
