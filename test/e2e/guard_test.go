package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/mbcas/mbcas/test/internal/guard"
)

// TestMain watches every pod of the cluster from before the first test until after the last one. What MBCAS must never do
// fails the whole suite, in whichever test it was done.
func TestMain(m *testing.M) {
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		os.Exit(m.Run()) // every test is skipped
	}
	g, err := guard.New(path, auditLog(path))
	if err != nil {
		fmt.Fprintln(os.Stderr, "the watch over the whole suite:", err)
		os.Exit(1)
	}
	code := m.Run()
	r := g.End()
	for _, n := range r.Notes {
		fmt.Println("    note:", n)
	}
	for _, f := range r.Faults {
		fmt.Println("    FAULT:", f)
	}
	fmt.Printf("    the watch over the whole suite saw %d pods, %d resizes and %d faults\n", r.Pods, r.Resizes, len(r.Faults))
	if len(r.Faults) > 0 {
		code = 1
	}
	os.Exit(code)
}

// auditLog is where the local cluster keeps it.
func auditLog(kubeconfig string) string {
	return filepath.Join(filepath.Dir(kubeconfig), "logs", "audit.log")
}
