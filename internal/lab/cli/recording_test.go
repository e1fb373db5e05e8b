package cli

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/recordings"
	"github.com/mbcas/mbcas/internal/whatif"
)

// recorded writes the recording of a scenario to a file, and returns its path and bytes.
func recorded(t *testing.T, scenario string, length time.Duration) (path string, file []byte) {
	t.Helper()
	var b bytes.Buffer
	if err := recordings.Played(t, scenario, mbcas.DefaultConfig(), length).Write(&b); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "node-1.mbcas")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, b.Bytes()
}

func text(t *testing.T, args ...string) string {
	t.Helper()
	out, err := lab(t, args...)
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return out
}

// TestReplay: a recording replays with the recorded results; one with another result names it and fails.
func TestReplay(t *testing.T) {
	path, file := recorded(t, "requests-that-tell", 100*time.Second)
	if out := text(t, "replay", path); !strings.Contains(out, "100 rounds, ") || !strings.HasSuffix(out, "Every result is the one recorded.\n") {
		t.Errorf("%s", out)
	}
	if err := os.WriteFile(path, otherResult(t, file), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := lab(t, "replay", path)
	if !errors.Is(err, replay.ErrOtherResults) || !strings.Contains(out, "1 results differ from those recorded. The first: ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// otherResult is a recording of the first round of a file, with another result.
func otherResult(t *testing.T, file []byte) []byte {
	t.Helper()
	rec, err := record.Open(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	to := record.NewRecorder(recordings.Everything)
	done := errors.New("done")
	_, err = replay.Play(rec, func(f *replay.Frame) error {
		to.Begin(f.At(), *f.Config, &round.State{})
		f.Output.Node.Supply++
		to.Round(*f.Round, f.Names, &f.Output)
		return done
	})
	var b bytes.Buffer
	if err := to.WriteTo(&b, recordings.About, 0); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, done) {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestDamagedRecordings: a file that is cut or corrupt is read up to there, and the offset is told; one that is no recording, or by
// another version, is an error.
func TestDamagedRecordings(t *testing.T) {
	path, file := recorded(t, "duel", 0)
	cut, corrupt := file[:len(file)-100], bytes.Clone(file)
	corrupt[len(corrupt)-50] ^= 1
	for name, tc := range map[string]struct {
		file []byte
		want string
		read bool
	}{
		"cut":           {cut, ": damaged at byte ", true},
		"corrupt":       {corrupt, ": the checksum does not fit; what comes before is read", true},
		"no minute":     {file[:400], "damaged at byte ", false},
		"no recording":  {[]byte("PK\x03\x04"), "damaged at byte 0: this is no recording of MBCAS: it does not begin with MBR1", false},
		"empty":         {nil, "damaged at byte 0: this is no recording", false},
		"other version": {otherSchema(t, file), "recorded by MBCAS v0.1.0: it was recorded by a version of MBCAS that records other values", false},
	} {
		if err := os.WriteFile(path, tc.file, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"replay", path}, {"what-if", path, "--reserve", "0.2"}} {
			out, err := lab(t, args...)
			if err != nil {
				out += err.Error()
			}
			if (err == nil) != tc.read || !strings.Contains(out, path+": ") || !strings.Contains(out, tc.want) {
				t.Errorf("%s, %s: error %v, want %q in\n%s", name, args[0], err, tc.want, out)
			}
		}
	}
}

// otherSchema is a file of a version that records other values.
func otherSchema(t *testing.T, file []byte) []byte {
	t.Helper()
	rec, err := record.Open(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Replace(file, []byte(rec.About.Schema), []byte("0123456789abcdef"), 1)
	const head = 5 + 5 // the magic, and the kind and length of the first part
	end := head + int(binary.LittleEndian.Uint32(other[6:]))
	table := crc32.MakeTable(crc32.Castagnoli)
	binary.LittleEndian.PutUint32(other[end:], crc32.Update(crc32.Checksum(other[5:6], table), table, other[head:end]))
	return other
}

// TestWhatIfDecided: the decided what-if is that of package whatif, and says what it is.
func TestWhatIfDecided(t *testing.T) {
	path, _ := recorded(t, "requests-that-tell", 100*time.Second)
	out := text(t, "what-if", path, "--priority", "*/hog-1=1000000")
	if !strings.Contains(out, "what the market would have decided on the counters of that time") || !strings.Contains(out, "default/hog-1") {
		t.Errorf("%s", out)
	}
	for _, tc := range []struct{ args, want string }{
		{"what-if x.mbcas --max-cpu shop/a=0", "want an amount of CPU"},
		{"what-if x.mbcas --request a=1", "want NAMESPACE/NAME=VALUE"},
		{"what-if x.mbcas --reserve 2", "--reserve 2: want a share"},
		{"what-if", "needs a recording"},
	} {
		if _, err := lab(t, strings.Fields(tc.args)...); !errors.As(err, new(UsageError)) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", tc.args, err)
		}
	}
	if _, err := lab(t, "what-if", path, "--opt-out", "other/*"); !errors.Is(err, whatif.ErrNoPod) {
		t.Errorf("no such pod: %v", err)
	}
}

// TestWhatIfPlayed: a played what-if says so, with its error, and is another answer than the decided one.
func TestWhatIfPlayed(t *testing.T) {
	path, _ := recorded(t, "requests-that-tell", 100*time.Second)
	out := text(t, "what-if", path, "--played", "--off")
	for _, want := range []string{"PLAYED by the simulator", "Error: with the settings in force it reproduces the recorded usage of the pods within ", "default/hog-1"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "would have decided on the counters") {
		t.Errorf("it also tells what was decided:\n%s", out)
	}
	if _, err := lab(t, "what-if", path, "--played", "--opt-out", "other/*"); !errors.Is(err, whatif.ErrNoPod) {
		t.Errorf("no such pod: %v", err)
	}
}

// TestScenarioFrom: the scenario of a recording is written once, and runs; compare runs it under other policies and tells its error.
func TestScenarioFrom(t *testing.T) {
	path, _ := recorded(t, "duel", 100*time.Second)
	dir := filepath.Join(t.TempDir(), "incident")
	if out := text(t, "scenario", "--from", path, "--out", dir); !strings.Contains(out, "2 pods for 1m39s from ") {
		t.Errorf("%s", out)
	}
	if out := text(t, "sim", filepath.Join(dir, "scenario.yaml"), "--policy", "static"); !strings.Contains(out, "recorded under static") {
		t.Errorf("%s", out)
	}
	if _, err := lab(t, "scenario", "--from", path, "--out", dir); err == nil || !strings.Contains(err.Error(), "name a folder that does not exist") {
		t.Errorf("a second time: %v", err)
	}
	if _, err := lab(t, "scenario"); !errors.As(err, new(UsageError)) || !strings.Contains(err.Error(), "--from is missing") {
		t.Errorf("without a file: %v", err)
	}
	out := text(t, "compare", "--recording", path, "--policy", "static", "--policy", "mbcas", "--seeds", "1", "--out", filepath.Join(dir, "compare"))
	if !strings.Contains(out, "2 runs of 1 scenarios under 2 policies") || !strings.Contains(out, "Error: with the settings in force it reproduces") {
		t.Errorf("%s", out)
	}
	if lines, err := os.ReadFile(filepath.Join(dir, "compare", "results.txt")); err != nil || !strings.Contains(string(lines), "scenario=recorded/policy=static") {
		t.Errorf("%v\n%s", err, lines)
	}
}
