package kube

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLeader(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	held := func(holder string, renewed time.Duration, lasts int32) *coordinationv1.Lease {
		at := metav1.NewMicroTime(start.Add(-time.Hour + renewed)) // its clock is an hour late
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at, LeaseDurationSeconds: &lasts}}
	}
	type look struct {
		after time.Duration
		lease *coordinationv1.Lease
		want  LeaderState
	}
	for name, looks := range map[string][]look{
		"none":            {{0, nil, NoLeader}, {time.Hour, nil, NoLeader}},
		"given back":      {{0, held("a", 0, 15), LeaderAlive}, {time.Second, held("", 1, 15), NoLeader}},
		"renews":          {{0, held("a", 0, 15), LeaderAlive}, {14 * time.Second, held("a", 14, 15), LeaderAlive}, {28 * time.Second, held("a", 28, 15), LeaderAlive}},
		"dies":            {{0, held("a", 0, 15), LeaderAlive}, {15 * time.Second, held("a", 0, 15), LeaderAlive}, {16 * time.Second, held("a", 0, 15), LeaderLapsed}},
		"short lease":     {{0, held("a", 0, 2), LeaderAlive}, {3 * time.Second, held("a", 0, 2), LeaderLapsed}},
		"says no time":    {{0, held("a", 0, 0), LeaderAlive}, {14 * time.Second, held("a", 0, 0), LeaderAlive}, {16 * time.Second, held("a", 0, 0), LeaderLapsed}},
		"another follows": {{0, held("a", 0, 15), LeaderAlive}, {20 * time.Second, held("a", 0, 15), LeaderLapsed}, {21 * time.Second, held("b", 0, 15), LeaderAlive}},
	} {
		var l LeaderObserver
		for i, look := range looks {
			if got := l.Observe(look.lease, start.Add(look.after)); got != look.want {
				t.Errorf("%s, look %d: %v, want %v", name, i+1, got, look.want)
			}
		}
	}
}
