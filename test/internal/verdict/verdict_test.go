package verdict

import (
	"strings"
	"testing"
)

func TestUnmeasured(t *testing.T) {
	one := 1.0
	for _, c := range []Check{
		AtMost("x", nil, "%v", 1, ""), Below("x", nil, "%v", 1, ""), Above("x", nil, "%v", 1, ""),
		Ratio("x", nil, &one, 1, ""), Ratio("x", &one, nil, 1, ""), Never("x", false, nil, ""),
	} {
		if c.Met != nil || c.Got != unmeasured {
			t.Errorf("%+v: want no verdict", c)
		}
	}
}

func TestBounds(t *testing.T) {
	v, two := 2.0, 4.0
	for _, c := range []struct {
		check Check
		met   bool
	}{
		{AtMost("at most", &v, "%v", 2, ""), true}, {AtMost("at most", &v, "%v", 1.9, ""), false},
		{Below("below", &v, "%v", 2, ""), false}, {Below("below", &v, "%v", 2.1, ""), true},
		{Above("above", &v, "%v", 2, ""), false}, {Above("above", &v, "%v", 1.9, ""), true},
		{Ratio("ratio", &v, &two, 0.5, ""), true}, {Ratio("ratio", &v, &two, 0.4, ""), false},
		{Never("never", true, nil, "never"), true}, {Never("never", true, []string{"once"}, "never"), false},
	} {
		if c.check.Met == nil || *c.check.Met != c.met {
			t.Errorf("%+v: want met %v", c.check, c.met)
		}
	}
}

func TestTable(t *testing.T) {
	v := 2.0
	checks := []Check{AtMost("a", &v, "%.0f", 2, "<= 2"), AtMost("b", &v, "%.0f", 1, "<= 1"), AtMost("c", nil, "", 1, "")}
	var out strings.Builder
	Write(&out, checks)
	if got := out.String(); !strings.Contains(got, "yes") || !strings.Contains(got, "NO") || strings.Count(got, "\n") != 4 {
		t.Errorf("table:\n%s", got)
	}
	if met, judged := Count(checks); met != 1 || judged != 2 {
		t.Errorf("%d of %d", met, judged)
	}
}
