package main

import (
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/must"
)

func TestResults(t *testing.T) {
	tests := map[string]struct {
		events string
		strict bool
		want   string // the last line
		say    string // somewhere in what is printed
		silent string // nowhere in what is printed
		reason string
	}{
		"passes": {
			events: `
				{"Action":"run","Package":"p","Test":"A"}
				{"Action":"output","Package":"p","Test":"A","Output":"chatter\n"}
				{"Action":"pass","Package":"p","Test":"A"}
				{"Action":"pass","Package":"p","Test":"A/sub"}
				{"Action":"pass","Package":"p","Elapsed":1.5}`,
			want: "2 passed, 0 failed, 0 skipped", say: "ok    p (1.5s)", silent: "chatter",
			reason: "a test and its subtest are one each; output of a passing test is noise",
		},
		"failing test": {
			events: `
				{"Action":"run","Package":"p","Test":"A"}
				{"Action":"output","Package":"p","Test":"A","Output":"got 1, want 2\n"}
				{"Action":"fail","Package":"p","Test":"A"}
				{"Action":"output","Package":"p","Output":"FAIL\n"}
				{"Action":"fail","Package":"p"}`,
			want: "0 passed, 1 failed, 0 skipped", say: "got 1, want 2",
			reason: "the package fails because of its test, which is counted already",
		},
		"build failure": {
			events: `
				{"Action":"build-output","ImportPath":"p [p.test]","Output":"undefined: x\n"}
				{"Action":"build-fail","ImportPath":"p [p.test]"}
				{"Action":"output","Package":"p","Output":"FAIL p [build failed]\n"}
				{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
			want: "0 passed, 1 failed, 0 skipped", say: "undefined: x",
			reason: "no test ran, so the package counts",
		},
		"hanging test": {
			events: `
				{"Action":"run","Package":"p","Test":"A"}
				{"Action":"output","Package":"p","Test":"A","Output":"panic: test timed out\n"}
				{"Action":"fail","Package":"p"}`,
			want: "0 passed, 1 failed, 0 skipped", say: "p A (never ended)",
			reason: "a test that never ended has failed",
		},
		"failing TestMain": {
			events: `
				{"Action":"pass","Package":"p","Test":"A"}
				{"Action":"output","Package":"p","Output":"exit status 3\n"}
				{"Action":"fail","Package":"p"}`,
			want: "1 passed, 1 failed, 0 skipped", say: "exit status 3",
			reason: "all tests passed and the package failed",
		},
		"skip": {
			events: `
				{"Action":"run","Package":"p","Test":"A"}
				{"Action":"output","Package":"p","Test":"A","Output":"=== RUN   A\n"}
				{"Action":"output","Package":"p","Test":"A","Output":"    a_test.go:7: needs root\n"}
				{"Action":"output","Package":"p","Test":"A","Output":"--- SKIP: A (0.00s)\n"}
				{"Action":"skip","Package":"p","Test":"A"}
				{"Action":"pass","Package":"p"}`,
			want: "0 passed, 0 failed, 1 skipped", say: "p A: needs root",
			reason: "a skip is visible, with its reason",
		},
		"skip that is not allowed": {
			events: `
				{"Action":"output","Package":"p","Test":"A","Output":"    a_test.go:7: needs root\n"}
				{"Action":"skip","Package":"p","Test":"A"}
				{"Action":"pass","Package":"p"}`,
			strict: true,
			want:   "0 passed, 1 failed, 0 skipped", say: "needs root",
			reason: "CI must run everything",
		},
		"optional skip": {
			events: `
				{"Action":"output","Package":"p","Test":"A","Output":"    a_test.go:7: optional: slow\n"}
				{"Action":"skip","Package":"p","Test":"A"}`,
			strict: true,
			want:   "0 passed, 0 failed, 1 skipped",
			reason: "a skip that says that the machine is not at fault is allowed",
		},
		"package without tests": {
			events: `
				{"Action":"output","Package":"p","Output":"?   p [no test files]\n"}
				{"Action":"skip","Package":"p"}`,
			want: "0 passed, 0 failed, 0 skipped", silent: "ok",
			reason: "there is nothing to count",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			count := newResults(&out, tc.strict)
			must.Succeed(t, count.read(strings.NewReader(tc.events)))
			count.summary()
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if last := lines[len(lines)-1]; last != tc.want {
				t.Errorf("last line %q, want %q: %s", last, tc.want, tc.reason)
			}
			if !strings.Contains(out.String(), tc.say) {
				t.Errorf("printed %q, want %q in it: %s", out.String(), tc.say, tc.reason)
			}
			if tc.silent != "" && strings.Contains(out.String(), tc.silent) {
				t.Errorf("printed %q, want no %q in it: %s", out.String(), tc.silent, tc.reason)
			}
		})
	}
}
