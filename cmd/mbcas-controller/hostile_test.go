package main

import (
	"io"
	"strings"
	"testing"
)

// TestOddFlags: an odd value of any flag is refused with the name of the flag or of its setting, or is a valid
// setting; no value ends the program otherwise.
func TestOddFlags(t *testing.T) {
	known, err := serveFlags(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	values := []string{
		"", " ", "-1", "0", "1", "NaN", "Inf", "-Inf", "1e999", "9223372036854775807", "9223372036854775808", "1h", "-1h", "1ns",
		"99999999h", "true", "maybe", "x", "\x00", strings.Repeat("9", 400), "enforce", "Enforce", "../..", "{}",
	}
	for name := range known.published {
		words := strings.Split(name, "-")
		for _, v := range values {
			if _, err := serveFlags([]string{"--" + name + "=" + v}, io.Discard); err != nil {
				text := strings.ToLower(err.Error())
				if !strings.Contains(text, name) && !strings.Contains(text, strings.Join(words, "")) && !strings.Contains(text, words[len(words)-1]) {
					t.Errorf("--%s=%q: the error does not say which flag is wrong: %v", name, v, err)
				}
			}
		}
	}
	if len(known.published) < 20 {
		t.Errorf("%d flags were tried", len(known.published))
	}
}
