package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// pods is a view of pods with a limit.
type pods struct {
	Pods []pod `json:"pods"`
}

type pod struct {
	Pod   string `json:"pod"`
	Limit string `json:"limit,omitempty"`
	Count int    `json:"count"`
}

func (v pods) Text(s format.Style) string {
	t := &format.Table{Header: []string{"POD", "LIMIT", "COUNT"}, Drop: []string{"COUNT"}, Meaning: func(header, _ string) format.Meaning {
		if header == "LIMIT" {
			return format.Capped
		}
		return format.Plain
	}}
	for _, p := range v.Pods {
		t.Add(p.Pod, p.Limit, fmt.Sprint(p.Count))
	}
	return t.Text(s)
}

func (v pods) Items() (items []Item) {
	for _, p := range v.Pods {
		items = append(items, Item{"pod/" + p.Pod, p})
	}
	return items
}

var two = pods{[]pod{{"cart", "900m", 1500000}, {"batch", "", 2}}}

// parse reads the flags of a command.
func parse(t *testing.T, args ...string) (*Show, error) {
	t.Helper()
	show := &Show{}
	cmd := &cobra.Command{Use: "list", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return nil }}
	show.Bind(cmd, Wide)
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	return show, cmd.Execute()
}

// TestForms: each form of output, and what is refused.
func TestForms(t *testing.T) {
	for form, want := range map[string]string{
		"name":                    "pod/cart\npod/batch\n",
		"jsonpath={.pods[*].pod}": "cart batch\n",
		"jsonpath=.pods[0].limit": "900m\n",
		`jsonpath={range .pods[*]}{.pod}={.count}{"\n"}{end}`: "cart=1500000\nbatch=2\n\n",
		"jsonpath={.nothing}":                           "\n",
		"custom-columns=P:.pod,LIMIT:{.limit},N:.count": "P       LIMIT    N\ncart    900m     1500000\nbatch   <none>   2\n",
	} {
		show, err := parse(t, "-o", form)
		if err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		var b strings.Builder
		if err := show.Form.Write(&b, two, format.Style{}); err != nil {
			t.Errorf("%s: %v", form, err)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", form, diff)
		}
	}
	for form, want := range map[string]string{
		"csv":                  "want one of wide, json, yaml, name, jsonpath=, custom-columns=",
		"jsonpath":             "want one of ",
		"json={.a}":            "want one of ",
		"jsonpath={.a":         "want a template such as {.pods[*].pod}",
		"custom-columns=":      "want HEADER:PATH",
		"custom-columns=A":     "want HEADER:PATH",
		"custom-columns=A:.b[": "want a template",
	} {
		if _, err := parse(t, "-o", form); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", form, err, want)
		}
	}
	if _, err := parse(t, "--color", "blue"); err == nil || !strings.Contains(err.Error(), "want one of auto, always, never") {
		t.Errorf("--color blue: %v", err)
	}
}

// TestStyle: width and color depend on the terminal, the flags and NO_COLOR; a pipe gets plain text.
func TestStyle(t *testing.T) {
	t.Setenv("TERM", "xterm")
	narrow := func() format.Screen { return format.Screen{Width: 20, Height: 10} }
	for name, tc := range map[string]struct {
		args     []string
		terminal bool
		env      map[string]string
		want     format.Style
	}{
		"pipe":                 {nil, false, nil, format.Style{}},
		"terminal":             {nil, true, nil, format.Style{Width: 20, Color: true}},
		"wide":                 {[]string{"-o", "wide"}, true, nil, format.Style{Color: true}},
		"NO_COLOR":             {nil, true, map[string]string{"NO_COLOR": "1"}, format.Style{Width: 20}},
		"dumb":                 {nil, true, map[string]string{"TERM": "dumb"}, format.Style{Width: 20}},
		"never":                {[]string{"--color=never"}, true, nil, format.Style{Width: 20}},
		"always, of a pipe":    {[]string{"--color=always"}, false, nil, format.Style{Color: true}},
		"always wins NO_COLOR": {[]string{"--color=always"}, true, map[string]string{"NO_COLOR": "1"}, format.Style{Width: 20, Color: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_COLOR", "")
			for key, value := range tc.env {
				t.Setenv(key, value)
			}
			show, err := parse(t, tc.args...)
			must.Succeed(t, err)
			var s format.Streams
			if tc.terminal {
				s.Screen = narrow
			}
			if got := show.style(s); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
	if ScreenOf(&strings.Builder{}) != nil {
		t.Error("a buffer is no terminal")
	}
}

// written are the writes to a stream, with their times.
type written struct {
	begun time.Time
	texts []string
	at    []time.Duration
	after func(int) error // counts writes
}

func (w *written) Write(p []byte) (int, error) {
	w.texts, w.at = append(w.texts, string(p)), append(w.at, time.Since(w.begun))
	if w.after != nil {
		if err := w.after(len(w.texts)); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// watching runs a watch whose reads give what answers says, until the stream has had so many writes.
func watching(t *testing.T, writes int, screen func() format.Screen, answers func(read int) (View, error), flags ...string) (out, errs *written, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, errs = &written{begun: time.Now()}, &written{begun: time.Now()}
	out.after = func(n int) error {
		if n == writes {
			cancel()
		}
		return nil
	}
	show, err := parse(t, append(flags, "-w", "--color=never")...)
	must.Succeed(t, err)
	read := 0
	err = show.Run(ctx, format.Streams{Out: out, Err: errs, Screen: screen}, func(ctx context.Context) (View, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a read has no deadline")
		}
		read++
		return answers(read)
	})
	return out, errs, err
}

// TestWatch: a terminal is redrawn, a pipe gets one text after the other, both with pauses that grow with the time of a
// read and after failures; the end of the context is no error.
func TestWatch(t *testing.T) {
	t.Run("terminal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			screen := func() format.Screen { return format.Screen{Width: 12, Height: 4} }
			many := pods{append(two.Pods, two.Pods...)}
			out, _, err := watching(t, 3, screen, func(n int) (View, error) {
				if n == 2 {
					return nil, errors.New("connection refused")
				}
				return many, nil
			})
			if err != nil || len(out.texts) != 3 {
				t.Fatalf("%d pictures, %v", len(out.texts), err)
			}
			want := "\x1b[H00:00:00 UTC\x1b[K\nPOD     LIMI\x1b[K\n(10 lines mo\x1b[K\n\x1b[J"
			want = strings.Replace(want, "00:00:00 UTC", out.texts[0][3:15], 1)
			if diff := cmp.Diff(want, out.texts[0]); diff != "" {
				t.Errorf("picture (-want +got):\n%s", diff)
			}
			if !strings.Contains(out.texts[1], "\nconnection r\x1b[K\n") {
				t.Errorf("the failure is not told:\n%q", out.texts[1])
			}
			if at := []time.Duration{0, 5 * time.Second, 15 * time.Second}; !cmp.Equal(out.at, at) {
				t.Errorf("drawn at %v, want %v", out.at, at)
			}
		})
	})
	t.Run("terminal, JSON", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			screen := func() format.Screen { return format.Screen{Width: 12, Height: 4} }
			out, _, err := watching(t, 2, screen, func(int) (View, error) { return two, nil }, "-o", "json")
			if err != nil || len(out.texts) != 2 || out.texts[1] != out.texts[0] || !strings.HasPrefix(out.texts[0], "{\n") || !strings.HasSuffix(out.texts[0], "}\n") {
				t.Errorf("%v, %q", err, out.texts)
			}
		})
	})
	t.Run("pipe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out, errs, err := watching(t, 4, nil, func(n int) (View, error) {
				if n > 1 && n < 8 {
					return nil, errors.New("connection refused")
				}
				time.Sleep(2 * time.Second)
				return two, nil
			})
			text := "POD     LIMIT   COUNT\ncart    900m    1500000\nbatch   -       2\n"
			if err != nil || len(out.texts) != 4 || out.texts[1] != text || out.texts[3] != text || !strings.HasSuffix(out.texts[2], " UTC\n") {
				t.Fatalf("%q, %v", out.texts, err)
			}
			// A read of 2 s rests for 8 s; failures rest for 10, 20, 40, 60, 60 and 60 s.
			want := []time.Duration{10, 20, 40, 80, 140, 200}
			for i := range want {
				want[i] *= time.Second
			}
			if !cmp.Equal(errs.at, want) || !strings.Contains(errs.texts[0], "connection refused; shown is what was read before; next try in 10s") {
				t.Errorf("failures at %v, want %v: %q", errs.at, want, errs.texts)
			}
		})
	})
	t.Run("ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			failure := errors.New("forbidden")
			if _, _, err := watching(t, 1, nil, func(int) (View, error) { return nil, failure }); !errors.Is(err, failure) {
				t.Errorf("the first read fails: %v", err)
			}
			closed := errors.New("broken pipe")
			show, err := parse(t, "-w")
			must.Succeed(t, err)
			out := &written{after: func(n int) error {
				if n > 2 {
					return closed
				}
				return nil
			}}
			if err := show.Run(t.Context(), format.Streams{Out: out}, func(context.Context) (View, error) { return two, nil }); !errors.Is(err, closed) {
				t.Errorf("the pipe is closed: %v", err)
			}
		})
	})
}

// TestCut: no more characters than the width, and every escape sequence.
func TestCut(t *testing.T) {
	for _, tc := range []struct {
		line  string
		width int
		want  string
	}{
		{"abcdef", 3, "abc"}, {"abc", 0, "abc"}, {"añb", 2, "añ"},
		{"a\x1b[31mbcd\x1b[0me", 2, "a\x1b[31mb\x1b[0m"},
	} {
		if got := cut(tc.line, tc.width); got != tc.want {
			t.Errorf("cut(%q, %d) is %q, want %q", tc.line, tc.width, got, tc.want)
		}
	}
}
