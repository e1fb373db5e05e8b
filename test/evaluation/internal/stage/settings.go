//go:build linux

package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/test/evaluation/internal/objects"
	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
	"github.com/mbcas/mbcas/test/internal/cluster"
)

// Parts are how the programs of a policy run on this cluster, as they do: their command lines and containers.
type Parts struct {
	MBCAS []corev1.Container `json:"mbcas,omitempty"`
	VPA   []string           `json:"vpa,omitempty"`
	HPA   []string           `json:"hpa,omitempty"`
}

// ReadParts reads the parts that the policies need: MBCAS' containers from the API server, and the command lines of the
// local cluster's programs from proc, which is /proc. A part that a policy needs and that does not run is an error.
func ReadParts(ctx context.Context, c client.Reader, proc string, policies []plan.Policy) (p Parts, err error) {
	var deployments appsv1.DeploymentList
	var sets appsv1.DaemonSetList
	for _, list := range []client.ObjectList{&sets, &deployments} {
		if err := c.List(ctx, list, client.InNamespace(cluster.System)); err != nil {
			return p, fmt.Errorf("settings of MBCAS: list %T in %s: %w", list, cluster.System, err)
		}
	}
	for _, d := range sets.Items {
		p.MBCAS = append(p.MBCAS, d.Spec.Template.Spec.Containers...)
	}
	for _, d := range deployments.Items {
		p.MBCAS = append(p.MBCAS, d.Spec.Template.Spec.Containers...)
	}
	paths, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	if err != nil {
		return p, err
	}
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil { // else it has just ended
			p.add(strings.Split(strings.TrimRight(string(text), "\x00"), "\x00"))
		}
	}
	slices.Sort(p.VPA)
	slices.Sort(p.HPA)
	for _, x := range policies {
		weighs := slices.ContainsFunc(p.MBCAS, func(c corev1.Container) bool { return c.Name == "weights" })
		if x.MBCAS && len(p.MBCAS) == 0 || x.Weights && !weighs || x.VPA != "" && len(p.VPA) == 0 ||
			x.HPA && len(p.HPA) == 0 {
			return p, fmt.Errorf("settings of policy %s: its programs do not run; look at: %s status", x.Name,
				cluster.Program)
		}
	}
	return p, nil
}

// add adds a command line if it is one of a part. Programs of the local cluster are in folders whose names have a
// digest of what they are built from.
func (p *Parts) add(args []string) {
	build, name := filepath.Base(filepath.Dir(args[0])), filepath.Base(args[0])
	line := strings.Join(append([]string{build + "/" + name}, args[1:]...), " ")
	switch {
	case strings.HasPrefix(build, "vpa-"):
		p.VPA = append(p.VPA, line)
	case name == "metrics-server":
		p.HPA = append(p.HPA, line)
	case name == "kube-controller-manager":
		kept := slices.DeleteFunc(slices.Clone(args[1:]), func(a string) bool {
			return !strings.HasPrefix(a, "--horizontal-pod-autoscaler-")
		})
		p.HPA = append(p.HPA, strings.Join(append([]string{build + "/" + name}, kept...), " "))
	}
}

// Settings are all settings of a cell's policy as JSON: the objects of the cell, the time to learn, and how the
// programs of the policy run. They are the same for each repeat.
func (p Parts) Settings(c plan.Cell) string {
	c.Repeat = 0
	x := struct {
		Objects []client.Object `json:"objects"`
		Load    string          `json:"load_before"`
		Age     string          `json:"age_before"`
		Parts   Parts           `json:"programs"`
	}{
		Objects: append([]client.Object{objects.Class(), objects.NewNamespace(c)}, objects.Workloads(c, "")...),
		Load:    c.Load().String(), Age: c.Age().String(),
	}
	if c.Policy.MBCAS {
		x.Parts.MBCAS = p.MBCAS
	}
	if c.Policy.VPA != "" {
		x.Parts.VPA = p.VPA
	}
	if c.Policy.HPA {
		x.Parts.HPA = p.HPA
	}
	text, err := json.MarshalIndent(x, "", "\t")
	if err != nil {
		panic(err) // objects of the API
	}
	return string(text)
}
