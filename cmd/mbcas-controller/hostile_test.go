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
	tried := 0
	for name := range known.published {
		for _, v := range values {
			tried++
			s, err := serveFlags([]string{"--" + name + "=" + v}, io.Discard)
			if err == nil {
				if err := s.controller.Validate(); err != nil {
					t.Errorf("--%s=%q is accepted, and then: %v", name, v, err)
				}
				continue
			}
			text, words := strings.ToLower(err.Error()), strings.Split(name, "-")
			if !strings.Contains(text, name) && !strings.Contains(text, strings.Join(words, "")) && !strings.Contains(text, words[len(words)-1]) {
				t.Errorf("--%s=%q: the error does not say which flag is wrong: %v", name, v, err)
			}
		}
	}
	if tried < 20*len(values) {
		t.Errorf("%d values tried of %d flags", tried, len(known.published))
	}
}
