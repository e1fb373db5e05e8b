//go:build linux

package kernel

// SetPread has this function read the files of cgroups.
func (h *Host) SetPread(pread func(fd int, to []byte, offset int64) (int, error)) {
	h.reader.pread = pread
	h.worker = h.newWorker(0)
}
