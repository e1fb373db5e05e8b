package cli

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/scenario"
)

// writeSeries writes the series and all changes into an existing folder. CPU is in cores, times are
// in seconds.
func writeSeries(dir string, sc *scenario.Scenario, nodes []nodeRun) error {
	pods := [][]string{{"node", "time", "pod", "role", "use", "useful", "offered", "limit", "demand", "throttled", "backlog"}}
	changes := [][]string{{"node", "time", "pod", "from", "to"}}
	machines := [][]string{{"node", "time", "idle", "price"}}
	for i, n := range nodes {
		node := strconv.Itoa(i + 1)
		every := cmp.Or(n.setup.Interval, time.Second).Seconds()
		at := func(k int) string { return figure(float64(k+1) * every) }
		for j := range n.result.Pods {
			p := &n.result.Pods[j]
			role := string(sc.Role(p.Spec.Name))
			for k, pt := range p.Points {
				if pt.Absent {
					continue
				}
				pods = append(pods, []string{
					node, at(k), p.Spec.Name, role, cores(pt.Usage), cores(pt.Useful), cores(pt.Offered), limit(pt.Limit), cores(pt.Demand),
					figure(pt.Throttle), figure(pt.Backlog.Seconds()),
				})
			}
			for _, c := range p.Changes {
				changes = append(changes, []string{node, figure(c.At.Seconds()), p.Spec.Name, limit(c.From), limit(c.To)})
			}
		}
		for k, idle := range n.result.Idle {
			price := ""
			if k < len(n.result.Price) {
				price = n.result.Price[k].String()
			}
			machines = append(machines, []string{node, at(k), figure(idle), price})
		}
	}
	for name, rows := range map[string][][]string{"pods.csv": pods, "changes.csv": changes, "nodes.csv": machines} {
		if err := writeCSV(filepath.Join(dir, name), rows); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	return nil
}

// createOut creates the folder of --out, if there is to be one, before anything runs in vain.
func createOut(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--out: %w; name a folder", err)
	}
	return nil
}

func writeCSV(path string, rows [][]string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := csv.NewWriter(f).WriteAll(rows); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func figure(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

func cores(m cpu.Milli) string { return figure(m.Cores()) }

// limit is empty where there is none.
func limit(m cpu.Milli) string {
	if m == 0 {
		return ""
	}
	return cores(m)
}
