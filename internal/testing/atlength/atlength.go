// Package atlength says how much of a slow test to run: a part in make test, the whole in make
// test-all, whose suite long sets MBCAS_LONG for each package that imports this one. A property
// takes the same cases in each make test, and drawn ones at length.
package atlength

import (
	"flag"
	"os"

	_ "pgregory.net/rapid" // it defines the flag
)

// Key is the variable of the environment by which tests run at length.
const Key = "MBCAS_LONG"

func init() {
	if !On() {
		_ = flag.Set("rapid.seed", "1") // TestSeeds fails without it
	}
}

// On says whether tests run at length.
func On() bool { return os.Getenv(Key) != "" }

// Of is the whole of a test at length, and else a part.
func Of[T any](part, whole T) T {
	if On() {
		return whole
	}
	return part
}
