package kube

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestSettings: a reader gets the values that the controller wrote, and no value for what is
// missing or malformed.
func TestSettings(t *testing.T) {
	data, err := NewSettings("v1.2.3", map[string]string{
		ModeFlag: "enforce", RollbackHoldOffFlag: "1h30m0s", QuotaHeadroomFlag: "0.25", ExternalChangeHoldOffFlag: "soon", "rate": "7",
	}).Data()
	must.Succeed(t, err)
	s, err := ReadSettings(&corev1.ConfigMap{Data: data})
	must.Succeed(t, err)
	if s.Version() != "v1.2.3" || s.Mode() != ModeEnforce {
		t.Errorf("version %q, mode %q", s.Version(), s.Mode())
	}
	if d, ok := s.Duration(RollbackHoldOffFlag); d != 90*time.Minute || !ok {
		t.Errorf("rollback hold-off %v, %v", d, ok)
	}
	if f, ok := s.Share(QuotaHeadroomFlag); f != 0.25 || !ok {
		t.Errorf("quota headroom %v, %v", f, ok)
	}
	for _, flag := range []string{ExternalChangeHoldOffFlag, RestoreAfterFlag} {
		if d, ok := s.Duration(flag); ok {
			t.Errorf("%s is %v, want unknown", flag, d)
		}
	}
	if f, ok := s.Share("rate"); ok {
		t.Errorf("a share of %v", f)
	}
	for _, data := range []map[string]string{nil, {SettingsKey: "{"}, {SettingsKey: `{"mode":1}`}} {
		cm := &corev1.ConfigMap{Data: data}
		cm.Namespace, cm.Name = "mbcas-system", SettingsName
		if _, err := ReadSettings(cm); err == nil || !strings.Contains(err.Error(), "mbcas-system/mbcas-settings") {
			t.Errorf("%v: error %v", data, err)
		}
	}
}
