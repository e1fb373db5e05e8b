package program

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestPrintFlags: with --print-flags alone a program prints every flag with its type and default, and starts nothing.
func TestPrintFlags(t *testing.T) {
	fs := flag.NewFlagSet("p", flag.ContinueOnError)
	fs.Bool("switch", true, "a switch")
	fs.Int("count", 3, "how many")
	fs.Float64("share", 0.5, "a share")
	fs.Duration("every", time.Second, "how often, as `time`")
	fs.String("name", "n", "a name")
	fs.Func("mode", "a mode", func(string) error { return nil })
	var level slog.Level
	fs.TextVar(&level, "level", slog.LevelInfo, "a level")
	var out strings.Builder
	if err := Parse(fs, []string{PrintFlags}, &out); !errors.Is(err, flag.ErrHelp) || ExitCode(err, "p", io.Discard) != 0 {
		t.Fatalf("%v, want flag.ErrHelp, which is no failure", err)
	}
	var got []Flag
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	want := []Flag{
		{"count", "integer", "3", "how many"},
		{"every", "duration", "1s", "how often, as time"},
		{"level", "string", "INFO", "a level"},
		{"mode", "string", "", "a mode"},
		{"name", "string", "n", "a name"},
		{"share", "number", "0.5", "a share"},
		{"switch", "boolean", "true", "a switch"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("printed %+v, want %+v", got, want)
	}
	var usage UsageError
	if err := Parse(fs, []string{"--count=1", PrintFlags}, io.Discard); !errors.As(err, &usage) {
		t.Errorf("beside another flag: %v, want a usage error", err)
	}
}
