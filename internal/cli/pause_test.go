package cli

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// TestPause: pause says how it took effect if no live controller exists. That it waits for a live
// one is proved in package restore.
func TestPause(t *testing.T) {
	dead := &coordinationv1.Lease{}
	dead.Namespace, dead.Name = kube.SystemNamespace, kube.LeaderLease
	dead.Spec.HolderIdentity, dead.Spec.RenewTime = new("controller-1"), ago(0)
	for want, objects := range map[string][]client.Object{
		"no controller runs": installation(),
		"no controller renews its Lease any more (last: controller-1)": append(installation(), dead),
	} {
		c, now := newCluster(t, objects...), noon
		c.Now = func() time.Time { now = now.Add(2 * time.Second); return now }
		c.prints(t, "pause incident 4711", want)
		var cm corev1.ConfigMap
		err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: kube.SystemNamespace, Name: kube.SwitchName}, &cm)
		if err != nil || cm.Data[kube.PausedKey] != "incident 4711" {
			t.Errorf("switch %v, %v", cm.Data, err)
		}
	}
}
