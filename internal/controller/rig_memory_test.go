package controller

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/memapi"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// inMemory runs a test with a rig on an API server in memory. Its clock moves only while everything
// waits, so no deadline depends on the machine. A test whose subject is an answer of the real API
// server takes newRig.
func inMemory(t *testing.T, test func(*testing.T, *rig)) {
	t.Helper()
	if os.Getenv("MBCAS_SKEW") != "" {
		t.Skip("optional: the API server in memory is that of one version")
	}
	synctest.Test(t, func(t *testing.T) {
		config := memapi.Config(memapi.New(time.Now).Shared(), "test")
		c, err := client.NewWithWatch(config, client.Options{Scheme: memapi.Scheme, Mapper: memapi.Mapper()})
		must.Succeed(t, err)
		r := newRigOn(t, &apiserver.Server{Config: config, Client: c}, DefaultConfig())
		r.rest = func() { time.Sleep(time.Millisecond) } // ends when all else waits, at another instant
		test(t, r)
	})
}

// withController runs a test in memory with a controller.
func withController(t *testing.T, test func(*testing.T, *rig, *life)) {
	t.Helper()
	inMemory(t, func(t *testing.T, r *rig) { test(t, r, r.live()) })
}

// eachInMemory runs a test for each case, with a rig on an API server in memory of its own.
func eachInMemory[C any](t *testing.T, cases map[string]C, test func(*testing.T, *rig, C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, r *rig) { test(t, r, c) })
		})
	}
}
