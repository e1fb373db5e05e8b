package cli

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// TestSettings: the commands print the settings that the controller publishes. If these are missing
// or malformed the commands say so, and print no figure instead.
func TestSettings(t *testing.T) {
	other := settings(map[string]string{
		kube.ModeFlag: "restore", kube.ExternalChangeHoldOffFlag: "7m0s", kube.RollbackHoldOffFlag: "90m0s", kube.QuotaHeadroomFlag: "0.5",
	})
	malformed := other.DeepCopy()
	malformed.Data[kube.SettingsKey] = "{"
	const help = "resize --help"
	for name, c := range map[string]struct {
		settings *corev1.ConfigMap
		want     map[string]string // by command
	}{
		"others": {other, map[string]string{
			"doctor": "default mode restore, hold-off 7m after an external change and 90m after a rollback, quota headroom 50%",
			"mode":   "default restore default", "explain frail-0": "not decreased until 2026-11-21 13:20 UTC",
		}},
		"missing": {nil, map[string]string{
			"doctor": "hold-offs and quota headroom are unknown: ConfigMap mbcas-system/mbcas-settings does not exist",
			"mode":   "default unknown default", "explain frail-0": "not decreased for the controller's --rollback-holdoff,",
			"list -A": "The default mode is unknown: ConfigMap mbcas-system/mbcas-settings does not exist", help: "for the controller's --external-change-holdoff",
		}},
		"malformed": {malformed, map[string]string{
			"doctor": "ConfigMap mbcas-system/mbcas-settings, key settings.json: unexpected end of JSON input",
			"mode":   "default unknown default", "explain frail-0": "not decreased for the controller's --rollback-holdoff,",
		}},
	} {
		objects := without(plaza(), kube.SettingsName)
		if c.settings != nil {
			objects = append(objects, client.Object(c.settings))
		}
		for args, want := range c.want {
			cl := newCluster(t, objects...)
			cl.Namespace = "plaza"
			if args == "mode" {
				args = "mode default"
			}
			stdout, _, err := cl.run(t, strings.Split(args, " ")...)
			if flat := strings.Join(strings.Fields(stdout), " "); err != nil || !strings.Contains(flat, want) {
				t.Errorf("%s: %s: %v, want %q:\n%s", name, args, err, want, stdout)
			}
		}
	}
}
