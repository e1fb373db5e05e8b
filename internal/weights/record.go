//go:build linux

package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// bootIDPath has another content after each start of the machine.
const bootIDPath = "/proc/sys/kernel/random/boot_id"

// Record is the file with the original values of the pods that were written. It is on the node's disk, so that it
// outlives the program.
type Record struct {
	path   string
	bootID string
	lock   *os.File // held while the program runs
}

// Close lets another program have the record.
func (r Record) Close() error { return r.lock.Close() }

// recordFile is its content.
type recordFile struct {
	BootID string           `json:"bootID"` // of the kernel that has the cgroups
	Pods   map[string]entry `json:"pods"`   // by UID
}

// entry is what the record holds of a pod: its original values, and what this program has given it since.
type entry struct {
	values
	// Wrote are the values that the pod may have by this program's hand: those before the last write, and those of it.
	// They are on disk before the write. Zero: nothing was written, or by a version that did not record it.
	Wrote [2]values `json:"wrote,omitzero"`
}

func (e entry) wrote(v values) bool { return v == e.Wrote[0] || v == e.Wrote[1] }

// externallyChanged says that a pod has values that another program wrote: neither the original ones, nor what this
// program wrote, nor what a cgroup has once it has left the idle class.
func (t *Tree) externallyChanged(e entry, has values) bool {
	idle := e.Idle || e.Wrote[0].Idle || e.Wrote[1].Idle
	return has != e.values && e.Wrote != [2]values{} && !e.wrote(has) && !(idle && t.atDefault(has))
}

// NewRecord is the record in a directory of the node's disk. It fails while another program has it.
func NewRecord(dir string) (Record, error) {
	id, err := os.ReadFile(bootIDPath)
	if err != nil {
		return Record{}, fmt.Errorf("identify this start of the machine: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Record{}, fmt.Errorf("record of original values: %w; mount a writable directory of the node there", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close() // nothing was written
		return Record{}, fmt.Errorf("record %s: %w: another mbcas-weights runs on this node; end it first", dir, err)
	}
	return Record{filepath.Join(dir, "originals.json"), strings.TrimSpace(string(id)), lock}, nil
}

// maxRecord bounds the file that is read.
const maxRecord = 1 << 20

// load is what the record holds of this start of the machine. Cgroups do not outlive the kernel, so originals of an
// earlier one are of cgroups that exist no more.
func (r Record) load() (map[string]entry, error) {
	st, err := os.Stat(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]entry{}, nil
	}
	var text []byte
	if err == nil {
		if st.Size() > maxRecord {
			return nil, fmt.Errorf("record %s has %d bytes: want at most %d; see docs/weights.md", r.path, st.Size(), maxRecord)
		}
		text, err = os.ReadFile(r.path)
	}
	var f recordFile
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		return nil, fmt.Errorf("record of original values: %w; restart the pods of the node that opted in, then remove %s",
			err, r.path)
	}
	if f.BootID != r.bootID || f.Pods == nil {
		return map[string]entry{}, nil
	}
	maps.DeleteFunc(f.Pods, func(uid string, e entry) bool { return !validUID(uid) || !e.valid() })
	return f.Pods, nil
}

// save replaces the record. It returns once the new one is on disk.
func (r Record) save(pods map[string]entry) error {
	text, err := json.Marshal(recordFile{r.bootID, pods})
	if err == nil {
		err = replaceFile(r.path, text)
	}
	if err != nil {
		return fmt.Errorf("record of original values: %w; see that the node's disk has space and is writable", err)
	}
	return nil
}

func replaceFile(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
