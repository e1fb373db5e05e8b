// Package program is how the programs of MBCAS read their command lines and end.
package program

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// UsageError is an invalid command line.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

func (e UsageError) Unwrap() error { return e.Err }

// FlagError is the usage error of a flag that a command does not have, or cannot read.
func FlagError(command string, err error) error {
	var number *strconv.NumError
	if !errors.As(err, &number) {
		return UsageError{fmt.Errorf("%w; see \"%s --help\"", err, command)}
	}
	want := map[string]string{
		"ParseUint": "a whole number, not below 0", "ParseFloat": "a number", "ParseBool": "true or false",
	}[number.Func]
	if want == "" {
		want = "a whole number"
	}
	if errors.Is(number, strconv.ErrRange) {
		want += ", and not one so large"
	}
	return UsageError{errors.New(strings.Replace(err.Error(), number.Error(), "want "+want, 1))}
}

// PrintFlags is the argument, alone, with which a program prints its flags as JSON instead of starting. The
// Helm chart's schema is made of them (tools/chart). It is no flag, and help does not name it.
const PrintFlags = "--print-flags"

// Flag is one flag of a program. Its type is boolean, integer, number, duration or string.
type Flag struct {
	Name, Type, Default, Usage string
}

// Flags are the flags of a set, by name.
func Flags(fs *flag.FlagSet) (flags []Flag) {
	fs.VisitAll(func(f *flag.Flag) {
		_, usage := flag.UnquoteUsage(f)
		flags = append(flags, Flag{Name: f.Name, Type: typeOf(f.Value), Default: f.DefValue, Usage: usage})
	})
	return flags
}

// typeOf is the type of a flag's value. What is no number, time or switch is read from a string.
func typeOf(v flag.Value) string {
	getter, ok := v.(flag.Getter)
	if !ok {
		return "string"
	}
	switch getter.Get().(type) {
	case bool:
		return "boolean"
	case int, int64, uint, uint64:
		return "integer"
	case float64:
		return "number"
	case time.Duration:
		return "duration"
	}
	return "string"
}

// Parse reads flags, and accepts nothing else. An error is a usage error.
func Parse(fs *flag.FlagSet, args []string, stderr io.Writer) error {
	fs.SetOutput(stderr)
	if len(args) == 1 && args[0] == PrintFlags {
		if err := json.NewEncoder(stderr).Encode(Flags(fs)); err != nil {
			return fmt.Errorf("print the flags: %w", err)
		}
		return flag.ErrHelp
	}
	if err := fs.Parse(args); err != nil {
		return UsageError{err}
	}
	if fs.NArg() > 0 {
		return UsageError{fmt.Errorf("unexpected argument %q: want flags only", fs.Arg(0))}
	}
	return nil
}

// AsksForVersion says whether the arguments ask for the program's version.
func AsksForVersion(args []string) bool {
	return len(args) > 0 && (args[0] == "version" || args[0] == "--version" || args[0] == "-version")
}

// ExitCode writes the error behind its prefix, and is 2 for bad usage and 1 for any other failure.
func ExitCode(err error, prefix string, stderr io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(stderr, prefix+":", err)
	var usage UsageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}
