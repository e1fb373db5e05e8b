package mbcas_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// decidesNumbers are the packages whose sums and products decide the whole numbers of a round.
var decidesNumbers = []string{
	"cpu", "market", "internal/sense", "internal/demand", "internal/pacing", "internal/credits", "internal/split", "internal/round",
}

// fused are instructions of arm64 that multiply and add with one rounding. The others round twice, as amd64 does.
var fused = regexp.MustCompile(`\(([^()\s]+\.go:\d+)\)\s+FN?M(ADD|SUB)[DS]\s`)

// TestSameSumsEverywhere: the compiler fuses no multiplication with an addition where it decides. arm64, s390x and others fuse
// x*y + z, which rounds a tie differently than amd64, so that a recording would replay with another result there. float64(x*y) + z
// keeps them apart (Go specification, "Floating-point operators").
func TestSameSumsEverywhere(t *testing.T) {
	args := []string{"build", "-gcflags=-S"}
	for _, pkg := range decidesNumbers {
		args = append(args, "./"+pkg)
	}
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "FMULD") {
		t.Fatalf("go build for arm64: %v\n%s", err, out[:min(len(out), 1000)])
	}
	for _, m := range fused.FindAllStringSubmatch(string(out), -1) {
		t.Errorf("%s: the product is fused with the sum on arm64; convert it: float64(x*y) + z", m[1])
	}
}
