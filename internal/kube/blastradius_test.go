package kube

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFactorsOf(t *testing.T) {
	for _, c := range []struct {
		annotations, labels map[string]string
		want                Factors
		wrong               string // in the error; "": none
	}{
		{want: Factors{}},
		{annotations: map[string]string{MaxFactorKey: "3", MinFactorKey: "0.5"}, want: Factors{3, 0.5}},
		{labels: map[string]string{MaxFactorKey: "1.5"}, want: Factors{Max: 1.5}},
		{annotations: map[string]string{MaxFactorKey: "0.5"}, want: Factors{Max: 1}, wrong: MaxFactorKey},
		{annotations: map[string]string{MaxFactorKey: "NaN"}, want: Factors{Max: 1}, wrong: `"NaN"`},
		{annotations: map[string]string{MinFactorKey: "0"}, want: Factors{Min: 1}, wrong: MinFactorKey},
		{annotations: map[string]string{MinFactorKey: "2", MaxFactorKey: "2"}, want: Factors{2, 1}, wrong: "shop"},
		{annotations: map[string]string{MinFactorKey: ""}, want: Factors{Min: 1}, wrong: `""`},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: c.annotations, Labels: c.labels}}
		got, err := FactorsOf(ns)
		if got != c.want || (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%v %v: %+v, %v; want %+v, and an error that names %q", c.annotations, c.labels, got, err, c.want, c.wrong)
		}
	}
}

func TestCanaryPercent(t *testing.T) {
	for text, want := range map[string]int{"20": 20, "1": 1, "100": 100, "0": 1, "101": 1, "20%": 1, "": 1} {
		got, err := CanaryPercent(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{CanaryKey: text}}})
		if valid := text == "20" || text == "1" || text == "100"; got != want || (err == nil) != valid {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	if got, err := CanaryPercent(&corev1.Namespace{}); got != 100 || err != nil {
		t.Errorf("without a setting: %d, %v; want 100", got, err)
	}
}

// TestNamespaceSettingsCount: each setting of a namespace on which decisions depend changes its part.
func TestNamespaceSettingsCount(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range []string{"", BelowDeclaredKey, StartupBoostKey, MaxFactorKey, MinFactorKey, CanaryKey, NoChangeKey} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: "x"}}}
		text := fmt.Sprint(NamespaceSettings(ns))
		if seen[text] {
			t.Errorf("%s changes nothing: %s", key, text)
		}
		seen[text] = true
	}
}
