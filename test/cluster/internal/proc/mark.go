package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mark is the environment variable that every process of a cluster carries, and
// hands on to the container shims, so that one whose record was lost is found.
const mark = "MBCAS_CLUSTER_MEMBER_OF"

// Strays lists the processes that carry this cluster's mark: its components and
// its container shims, also those whose record was never written.
func (r Records) Strays() ([]Record, error) {
	members, err := marked()
	if err != nil {
		return nil, err
	}
	var found []Record
	for _, m := range members {
		if m.state != r.State {
			continue
		}
		rec, err := observe(m.pid)
		if err != nil {
			continue // gone meanwhile
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(m.pid), "cmdline"))
		rec.Args = strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
		rec.Name = filepath.Base(rec.Args[0])
		found = append(found, rec)
	}
	return found, nil
}

// States are the state folders of the clusters that have processes which this
// user may read.
func States() ([]string, error) {
	members, err := marked()
	if err != nil {
		return nil, err
	}
	var states []string
	for _, m := range members {
		states = append(states, m.state)
	}
	slices.Sort(states)
	return slices.Compact(states), nil
}

type member struct {
	pid   int
	state string
}

func marked() ([]member, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []member
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil {
			continue // gone, or another user's
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if state, ok := bytes.CutPrefix(v, []byte(mark+"=")); ok {
				found = append(found, member{pid: pid, state: string(state)})
				break
			}
		}
	}
	return found, nil
}
