package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/test/evaluation/internal/compare"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

func TestParse(t *testing.T) {
	o, err := parse([]string{"--namespace", "shop", "--url", "http://shop"}, io.Discard)
	if err != nil || o.Baseline != compare.Restore || o.Pairs != 5 {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{
		{}, {"--namespace", "shop"}, {"--namespace", "shop", "--url", "http://shop", "--pairs", "1"},
		{"--namespace", "shop", "--url", "http://shop", "now"}, {"--fast"},
	} {
		if _, err := parse(args, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%v: %v, want a usage error", args, err)
		}
	}
}

// TestPlay: a service over HTTP and a real API server, without a kubelet: what it prints and writes.
func TestPlay(t *testing.T) {
	s := apiserver.Start(t)
	clients, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "ok")
	}))
	defer service.Close()
	namespace := s.Namespace(t)
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = namespace, "web"
	pod.Spec.NodeName = "n1"
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "x"}}
	if err := s.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	if err := s.Client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "compare.json")
	o, err := parse([]string{
		"--namespace", namespace, "--url", service.URL, "--pairs", "2", "--rate", "200", "--settle", "50ms",
		"--for", "200ms", "--json", path,
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := play(t.Context(), o, clients, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"p99: enforce over restore is ", "(2 pairs)", "note: throttling is unknown: ", "note: limits were the same",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &out)
		}
	}
	text, err := os.ReadFile(path)
	var d document
	if err := errors.Join(err, json.Unmarshal(text, &d)); err != nil || len(d.Runs) != 4 || d.Summary.P99 == nil {
		t.Errorf("%v: %s", err, text)
	}
	if d.Settings.Namespace != namespace {
		t.Errorf("settings %+v", d.Settings)
	}
}
