package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/mbcas/mbcas/internal/kube"
)

// Cluster is a namespace of a cluster, through its API server. The rights that it needs: get and patch namespaces, list
// pods of the namespace, and for throttling get nodes/proxy.
type Cluster struct {
	Client    kubernetes.Interface
	Namespace string
	Selector  string

	known    bool
	original *string   // the label before; nil: none
	ours     []*string // what the label is if no other writer has changed it: two values where an answer was lost
}

// SetMode sets the label of the namespace. It fails if another writer has changed the label meanwhile.
func (c *Cluster) SetMode(ctx context.Context, mode string) error { return c.set(ctx, &mode) }

// Reset gives the namespace the label that it had, unless another writer has changed it.
func (c *Cluster) Reset(ctx context.Context) error {
	if !c.known {
		return nil
	}
	return c.set(ctx, c.original)
}

// set sets the label, again where another program has changed something else of the namespace meanwhile.
func (c *Cluster) set(ctx context.Context, mode *string) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { return c.patch(ctx, mode) })
}

func (c *Cluster) patch(ctx context.Context, mode *string) error {
	ns, err := c.Client.CoreV1().Namespaces().Get(ctx, c.Namespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("namespace %s: %w", c.Namespace, err)
	}
	var is *string
	if v, ok := ns.Labels[kube.ModeLabel]; ok {
		is = &v
	}
	if !c.known {
		c.known, c.original, c.ours = true, is, []*string{is}
	}
	if !slices.ContainsFunc(c.ours, func(label *string) bool { return same(is, label) }) {
		return fmt.Errorf("namespace %s: another writer has set label %s to %s, so it is left as it is; it was %s",
			c.Namespace, kube.ModeLabel, text(is), text(c.original))
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": ns.ResourceVersion, "labels": map[string]*string{kube.ModeLabel: mode},
	}})
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().Namespaces().Patch(ctx, c.Namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		if !apierrors.IsConflict(err) { // it may have been carried out
			c.ours = append(c.ours, mode)
		}
		return fmt.Errorf("set label %s of namespace %s to %s: %w; it was %s before all runs",
			kube.ModeLabel, c.Namespace, text(mode), err, text(c.original))
	}
	c.ours = []*string{mode}
	return nil
}

func same(a, b *string) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

func text(label *string) string {
	if label == nil {
		return "absent"
	}
	return fmt.Sprintf("%q", *label)
}

// running are the pods that the selector chooses and that have a node.
func (c *Cluster) running(ctx context.Context) (pods []corev1.Pod, err error) {
	list, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: c.Selector})
	if err != nil {
		return nil, fmt.Errorf("pods of namespace %s: %w", c.Namespace, err)
	}
	for _, p := range list.Items {
		if p.Spec.NodeName != "" && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// Limits are the sum of the CPU limits of the pods, and their number.
func (c *Cluster) Limits(ctx context.Context) (sum int64, pods int, err error) {
	all, err := c.running(ctx)
	for _, p := range all {
		for _, x := range p.Spec.Containers {
			sum += x.Resources.Limits.Cpu().MilliValue()
		}
	}
	return sum, len(all), err
}

// counter has the counters of a container, by its cgroup.
type counter struct{ periods, throttled float64 }

// Periods are the CFS periods of containers.
type Periods map[string]counter

// Since is the share of periods since before in which containers were throttled; false: no container of both had any.
func (p Periods) Since(before Periods) (share float64, ok bool) {
	var periods, throttled float64
	for id, now := range p {
		was, both := before[id]
		if both && now.periods >= was.periods && now.throttled >= was.throttled {
			periods, throttled = periods+now.periods-was.periods, throttled+now.throttled-was.throttled
		}
	}
	if periods <= 0 {
		return 0, false
	}
	return throttled / periods, true
}

// Periods reads the counters of the pods' containers from the cAdvisor metrics of their kubelets. The kubelet renews
// these every 10 to 15 s, so an interval is off by as much at both ends.
func (c *Cluster) Periods(ctx context.Context) (Periods, error) {
	pods, err := c.running(ctx)
	if err != nil {
		return nil, err
	}
	nodes, names := map[string]bool{}, map[string]bool{}
	for _, p := range pods {
		nodes[p.Spec.NodeName], names[p.Name] = true, true
	}
	all := Periods{}
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		raw, err := c.Client.CoreV1().RESTClient().Get().
			Resource("nodes").Name(node).SubResource("proxy").Suffix("metrics/cadvisor").DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("metrics of the kubelet of node %s: %w; it needs the right to get nodes/proxy",
				node, err)
		}
		if err := all.add(raw, c.Namespace, names); err != nil {
			return nil, fmt.Errorf("metrics of the kubelet of node %s: %w", node, err)
		}
	}
	return all, nil
}

// add adds the counters of a kubelet's metrics.
func (p Periods) add(raw []byte, namespace string, pods map[string]bool) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	each := func(family string, to func(c *counter, v float64)) {
		for _, m := range families[family].GetMetric() {
			labels := labelsOf(m)
			if labels["namespace"] != namespace || !pods[labels["pod"]] || labels["container"] == "" {
				continue // another pod's, or the sum of a pod
			}
			id := labels["pod"] + "/" + labels["container"] + "/" + labels["id"]
			c := p[id]
			to(&c, m.GetCounter().GetValue())
			p[id] = c
		}
	}
	each("container_cpu_cfs_periods_total", func(c *counter, v float64) { c.periods = v })
	each("container_cpu_cfs_throttled_periods_total", func(c *counter, v float64) { c.throttled = v })
	return nil
}

func labelsOf(m *dto.Metric) map[string]string {
	all := map[string]string{}
	for _, l := range m.GetLabel() {
		all[l.GetName()] = l.GetValue()
	}
	return all
}
