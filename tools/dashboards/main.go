// Command dashboards writes the dashboards of MBCAS as files of Grafana: one for each question that users ask. The
// argument is the folder, monitoring/dashboards by default.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := filepath.Join("monitoring", "dashboards")
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := write(dir); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

// write writes each dashboard into a file named by its uid.
func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range dashboards {
		text, err := d.grafana()
		if err != nil {
			return fmt.Errorf("dashboard %s: %w", d.uid, err)
		}
		if err := os.WriteFile(filepath.Join(dir, d.uid+".json"), text, 0o644); err != nil {
			return fmt.Errorf("write dashboard %s: %w", d.uid, err)
		}
	}
	return nil
}
