package cli

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/bundle"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// logged is a log of an agent, with pods that are gone.
const logged = `{"time":"2026-11-21T11:59:00Z","level":"INFO","msg":"market","price":0.9,"node":"node-1","took":"2ms"}
{"time":"2026-11-21T11:59:01Z","level":"WARN","msg":"limit","pod":"bazaar/gone-77","uid":"uid-gone","limit":"900m","err":"pod cart-7d9f: 10.2.3.4:6443 refused"}
{"time":"2026-11-21T11:59:02Z","level":"INFO","msg":"resize","audit":true,"pod":"bazaar/gone-77","priority":"needed","from":{"payments-sidecar":"500m"},"to":{"payments-sidecar":"700m"}}
panic: batch-x2
`

// supported is the shop with all that a bundle reads.
func supported(t *testing.T) *fakeCluster {
	t.Helper()
	controller := apiserver.RunningPod(kube.SystemNamespace, cluster.ControllerName+"-5d", apiserver.Container("controller", "20m", ""))
	controller.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "controller", RestartCount: 2}}
	na := &v1alpha1.NodeAllocation{}
	na.Name = "node-1"
	na.Spec.Pods = []v1alpha1.NodePod{{UID: "uid-cart-7d9f", Constraints: &v1alpha1.Constraints{NoDecrease: "pdb/cart-budget"}}}
	c := newCluster(t, slices.Concat(shop(), events(), []client.Object{controller, na})...)
	c.Round = respond(lastRound)
	c.Rounds = serves(recorderOf(150))
	c.Logs = func(_ context.Context, p *corev1.Pod, container string, previous bool, _ int64) ([]byte, error) {
		return fmt.Appendf(nil, "%s%s %s %v\n", logged, p.Name, container, previous), nil
	}
	return c
}

// unzip are the files of a bundle. A recording is there as the text of its events.
func unzip(t *testing.T, path string) map[string]string {
	t.Helper()
	z, err := zip.OpenReader(path)
	must.Succeed(t, err)
	defer z.Close()
	files := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		must.Succeed(t, err)
		data, err := io.ReadAll(r)
		must.Succeed(t, err)
		files[f.Name] = string(data)
		if strings.HasSuffix(f.Name, ".mbcas") {
			files[f.Name] = played(t, data)
		}
	}
	return files
}

func played(t *testing.T, data []byte) string {
	t.Helper()
	rec, err := record.Open(bytes.NewReader(data))
	must.Succeed(t, err)
	var b strings.Builder
	fmt.Fprintf(&b, "%+v\n", rec.About)
	sum, err := replay.Play(rec, func(f *replay.Frame) error {
		fmt.Fprintf(&b, "%+v %+v %+v\n", f.Pods, *f.Input, f.Output)
		return nil
	})
	if err != nil || sum.Rounds != 150 || sum.Others > 0 {
		t.Errorf("the recording replays as %+v, %v", sum, err)
	}
	return b.String()
}

// indexOf is the index, with what could not be read.
func indexOf(t *testing.T, files map[string]string) (index bundle.Index, failures string) {
	t.Helper()
	must.Succeed(t, json.Unmarshal([]byte(files["index.json"]), &index))
	for _, p := range index.Parts {
		for _, e := range p.Errors {
			failures += p.Name + ": " + e + "\n"
		}
	}
	return index, failures
}

// TestBundle: the zip has every part, the user alone may read it, progress goes to stderr, and nothing is written to the
// cluster.
func TestBundle(t *testing.T) {
	t.Chdir(t.TempDir())
	c := supported(t)
	stdout, stderr, err := c.run(t, "bundle", "-o", "b.zip")
	if err != nil || !strings.Contains(stdout, "b.zip: 11 files, ") || !strings.Contains(stderr, "recordings (6 of 7)\n") {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	if info, err := os.Stat("b.zip"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	files := unzip(t, "b.zip")
	for name, want := range map[string]string{
		"versions.txt": "v1.36.3", "doctor.txt": "OK", "doctor.yaml": "findings:", "podallocations.yaml": "cart-7d9f",
		"nodeallocations.yaml": "pdb/cart-budget", "events.yaml": "items:", "recordings/node-1.mbcas": "cart-7d9f",
		"logs/mbcas-agent-abcde-agent.log":               "gone-77",
		"logs/mbcas-controller-5d-controller.log":        "controller false",
		"logs/mbcas-controller-5d-controller-before.log": "controller true",
		"index.json": `"anonymized": false`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %q:\n%s", name, want, files[name])
		}
	}
	index, failures := indexOf(t, files)
	if len(files) != 11 || failures != "" || len(index.Parts) != 7 {
		t.Errorf("%d files, %+v, %s", len(files), index, failures)
	}
	if !strings.Contains(files["events.yaml"], "SkipResize") == strings.Contains(files["events.yaml"], "Pulled") {
		t.Errorf("Events of other pods are in it, or MBCAS's are not:\n%s", files["events.yaml"])
	}
	if len(c.writes) > 0 {
		t.Errorf("wrote %v", c.writes)
	}
	c.fails(t, "bundle -o b.zip", "b.zip exists; name another file with -o")
	for _, args := range []string{"bundle", "bundle -o c.zip --nodes -1"} {
		if err := c.fails(t, args, ""); !errors.As(err, new(UsageError)) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestBundleAnonymized: no file of an anonymized bundle, its recordings included, has a name of the cluster, and not the
// names of files either; a pod has the same pseudonym everywhere, and others in the next bundle.
func TestBundleAnonymized(t *testing.T) {
	t.Chdir(t.TempDir())
	c := supported(t)
	c.prints(t, "bundle -o b.zip --anonymize")
	files := unzip(t, "b.zip")
	if _, failures := indexOf(t, files); failures != "" || len(files) != 11 {
		t.Errorf("%d files: %s", len(files), failures)
	}
	known := []string{"gone-77", "uid-gone", "bazaar", "payments-sidecar", "10.2.3.4", "cart-budget", "node-1", "uid-before", "shop", "lab", "work", "app", "proxy"}
	for _, o := range shop() {
		if pod, ok := o.(*corev1.Pod); ok && pod.Namespace != kube.SystemNamespace {
			known = append(known, pod.Name, string(pod.UID))
		}
	}
	for _, name := range known {
		pattern := regexp.MustCompile(`(^|[^A-Za-z0-9])` + regexp.QuoteMeta(name) + `($|[^A-Za-z0-9])`)
		for file, text := range files {
			if !strings.Contains(file+text, name) { // the pattern is slow
				continue
			}
			if m := pattern.FindStringIndex(text); m != nil {
				t.Errorf("%s has %q: %q", file, name, text[max(0, m[0]-40):min(len(text), m[1]+40)])
			}
			if pattern.MatchString(file) {
				t.Errorf("the file %s is named by %q", file, name)
			}
		}
	}
	gone := regexp.MustCompile(`"pod":"(anon-[0-9a-f]{12})/(anon-[0-9a-f]{12})"`).FindStringSubmatch(files["logs/mbcas-controller-5d-controller.log"])
	agent := ""
	for name, text := range files {
		if strings.HasPrefix(name, "logs/") {
			agent += text
		}
	}
	if gone == nil || strings.Count(agent, gone[2]) != 6 { // twice in each of three logs
		t.Errorf("the pod that is gone is %q in\n%s", gone, agent)
	}
	if !strings.Contains(agent, `"limit":"900m"`) || !strings.Contains(agent, `"took":"2ms"`) || !strings.Contains(files["index.json"], `"anonymized": true`) {
		t.Errorf("too much is replaced:\n%s", agent)
	}
	c.prints(t, "bundle -o again.zip --anonymize")
	for name, text := range unzip(t, "again.zip") {
		if gone != nil && strings.Contains(text, gone[2]) {
			t.Errorf("%s has a pseudonym of the bundle before", name)
		}
	}
}

// TestBundlePartFails: what cannot be read is named in the index and on stderr, and everything else is there.
func TestBundlePartFails(t *testing.T) {
	t.Chdir(t.TempDir())
	c := supported(t)
	recordsNothing(c)
	c.Logs = func(_ context.Context, p *corev1.Pod, _ string, previous bool, _ int64) ([]byte, error) {
		if previous {
			return nil, errors.New("no log before")
		}
		return []byte("x"), nil
	}
	c.refuse(&corev1.EventList{}, errors.New("no Events for you"))
	stdout, stderr, err := c.run(t, "bundle", "-o", "b.zip")
	if err != nil || !strings.Contains(stdout, "3 things could not be read in full") {
		t.Fatalf("%v\n%s", err, stdout)
	}
	files := unzip(t, "b.zip")
	_, failures := indexOf(t, files)
	want := "Events: list for events.yaml: no Events for you\n" +
		"recordings: recording of node node-1: records nothing\n" +
		"logs: log of pod mbcas-system/mbcas-controller-5d, container controller: no log before\n"
	if failures != want || len(files) != 8 {
		t.Errorf("%d files, failures\n%s", len(files), failures)
	}
	for line := range strings.Lines(want) {
		if _, text, _ := strings.Cut(line, ": "); !strings.Contains(stderr, "  "+text) {
			t.Errorf("stderr has no %q:\n%s", text, stderr)
		}
	}
}

// TestBundleBounds: logs are cut at their end, recordings are of the nodes with the highest prices, and the index says so.
func TestBundleBounds(t *testing.T) {
	t.Chdir(t.TempDir())
	c := supported(t)
	for _, o := range []client.Object{agentLease("node-cheap", 1e9, ""), agentLease("node-silent", 60e9, "")} {
		must.Succeed(t, c.Client.Create(t.Context(), o))
	}
	asked := int64(0)
	c.Logs = func(_ context.Context, _ *corev1.Pod, _ string, _ bool, most int64) ([]byte, error) {
		asked = most
		return []byte(strings.Repeat("x", 3*int(most)) + "end"), nil
	}
	c.prints(t, "bundle -o b.zip --nodes 1")
	files := unzip(t, "b.zip")
	_, failures := indexOf(t, files)
	log := files["logs/mbcas-agent-abcde-agent.log"]
	if len(log) != int(asked) || !strings.HasSuffix(log, "xend") || !strings.Contains(failures, fmt.Sprintf("mbcas-agent-abcde-agent.log has the last %d bytes only", asked)) {
		t.Errorf("%d bytes of %d, %s", len(log), asked, failures)
	}
	if files["recordings/node-1.mbcas"] == "" || !strings.Contains(failures, "recordings: 1 of 3 nodes, those with the highest prices; --nodes changes that") {
		t.Errorf("%s", failures)
	}
}
