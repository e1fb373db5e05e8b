package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/internal/kube"
)

// TestPause: pause succeeds once the controller has acknowledged this pause, or if no live controller
// exists.
func TestPause(t *testing.T) {
	for name, c := range map[string]struct {
		leads, renews, answers bool
		out                    string // part of what is printed
		fails                  string // part of the error; "": none
	}{
		"acknowledged":                      {leads: true, renews: true, answers: true, out: "the controller has acknowledged it"},
		"no controller":                     {out: "no controller leads"},
		"a dead controller":                 {leads: true, out: "no longer renews its Lease"},
		"a live controller does not answer": {leads: true, renews: true, fails: "may still be resizing"},
	} {
		t.Run(name, func(t *testing.T) {
			// An earlier pause of the same words was acknowledged.
			cm := &corev1.ConfigMap{Data: map[string]string{kube.PausedKey: "true", kube.AcknowledgedKey: "true"}}
			cm.Namespace, cm.Name = kube.SystemNamespace, kube.SwitchName
			cl := newCluster(t, append(installation(), cm)...)
			now := noon
			cl.Now = func() time.Time { now = now.Add(2 * time.Second); return now }
			looks := 0
			cl.Client = interceptor.NewClient(cl.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					switch o := o.(type) {
					case *corev1.ConfigMap:
						if looks++; looks == 3 && c.answers {
							stored := cm.DeepCopy()
							if err := w.Patch(ctx, stored, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"acknowledged":"true"}}`))); err != nil {
								return err
							}
						}
					case *coordinationv1.Lease:
						if key.Name == kube.LeaderLease && c.leads {
							holder, at := "controller-1", metav1.NewMicroTime(noon)
							if c.renews {
								at = metav1.NewMicroTime(now)
							}
							o.Spec.HolderIdentity, o.Spec.RenewTime = &holder, &at
							return nil
						}
					}
					return w.Get(ctx, key, o, opts...)
				},
			})
			stdout, _, err := cl.run(t, "pause")
			switch {
			case c.fails == "" && err != nil:
				t.Errorf("error %v", err)
			case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(stdout, "acknowledged")):
				t.Errorf("printed %q, error %v; want one with %q", stdout, err, c.fails)
			case !strings.Contains(stdout, c.out) || c.answers && looks < 3:
				t.Errorf("printed %q after %d looks, want %q", stdout, looks, c.out)
			}
		})
	}
}
