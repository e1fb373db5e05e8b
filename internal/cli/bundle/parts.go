package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/doctor"
	"github.com/mbcas/mbcas/internal/cli/past"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/market"
)

// parts are read in this order.
var parts = []struct {
	name string
	read func(*collector, context.Context) error
}{
	{"versions", (*collector).versions},
	{"doctor", (*collector).doctor},
	{"PodAllocations", func(c *collector, ctx context.Context) error {
		return c.objects(ctx, "podallocations.yaml", &v1alpha1.PodAllocationList{}, all)
	}},
	{"NodeAllocations", func(c *collector, ctx context.Context) error {
		return c.objects(ctx, "nodeallocations.yaml", &v1alpha1.NodeAllocationList{}, all)
	}},
	{"Events", func(c *collector, ctx context.Context) error {
		return c.objects(ctx, "events.yaml", &corev1.EventList{}, c.ours)
	}},
	{"recordings", (*collector).recordings},
	{"logs", (*collector).logs},
}

func all(client.Object) bool { return true }

// ours are the Events of MBCAS's own pods, and those that MBCAS wrote or that are about its objects.
func (c *collector) ours(o client.Object) bool {
	e, ok := o.(*corev1.Event)
	return ok && (e.Namespace == c.System || strings.Contains(e.Source.Component+e.ReportingController, "mbcas") ||
		strings.HasPrefix(e.InvolvedObject.APIVersion, v1alpha1.GroupVersion.Group))
}

func (c *collector) versions(ctx context.Context) error {
	text, err := c.options.Versions(ctx)
	if text != "" {
		c.add(file{name: "versions.txt", text: text})
	}
	return err
}

// doctor adds the findings. Everything that doctor reads has names, which are remembered.
func (c *collector) doctor(ctx context.Context) error {
	facts := doctor.Gather(ctx, c.Access)
	report := doctor.NewReport(doctor.Judge(facts))
	c.keepOwn(facts.SystemPods)
	err := errors.Join(learnEach(c.names, facts.Pods), learnEach(c.names, facts.Nodes), learnEach(c.names, facts.Namespaces),
		learnEach(c.names, facts.SystemPods), learnEach(c.names, facts.Signals))
	for _, of := range facts.Objects {
		err = errors.Join(err, learnEach(c.names, of.HPAs), learnEach(c.names, of.VPAs), learnEach(c.names, of.PDBs),
			learnEach(c.names, of.LimitRanges), learnEach(c.names, of.Quotas))
	}
	if err != nil {
		return err
	}
	as, err := generic(report)
	if err != nil {
		return err
	}
	c.add(file{name: "doctor.yaml", object: as})
	c.add(file{name: "doctor.txt", text: report.Text(false)})
	return nil
}

// keepOwn keeps the names of MBCAS's own pods: they say which log is whose, and nothing about the cluster.
func (c *collector) keepOwn(pods []corev1.Pod) {
	for i := range pods {
		if role(&pods[i]) != "" {
			c.names.keep[pods[i].Name] = true
		}
	}
}

// role is which part of MBCAS a pod of its namespace is; "": none.
func role(p *corev1.Pod) string {
	for _, name := range []string{cluster.AgentName, cluster.ControllerName} {
		if strings.HasPrefix(p.Name, name+"-") {
			return name
		}
	}
	return ""
}

// pageSize is how many objects are asked for at once.
const pageSize = 500

// objects adds the objects of a kind that are kept, without what their managers wrote about fields, and without labels. Where
// not all can be read, those that were are added.
func (c *collector) objects(ctx context.Context, name string, list client.ObjectList, keep func(client.Object) bool) error {
	found, more := []any{}, false
	for {
		if err := c.Client.List(ctx, list, client.Limit(pageSize), client.Continue(list.GetContinue())); err != nil {
			if err = fmt.Errorf("list for %s: %w", name, err); len(found) == 0 {
				return err
			}
			c.failed(fmt.Errorf("%w; it has the first %d objects only", err, len(found)))
			break
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			o, ok := item.(client.Object)
			if !ok || !keep(o) {
				return nil
			}
			if more = len(found) == mostObjects; more {
				return nil
			}
			o.SetManagedFields(nil)
			o.SetLabels(nil)
			o.SetAnnotations(nil)
			v, err := generic(o)
			if err == nil {
				c.names.learn(v)
				found = append(found, v)
			}
			return err
		})
		if err != nil {
			return err
		}
		if more {
			c.failed(fmt.Errorf("%s has the first %d objects only", name, mostObjects))
			break
		}
		if list.GetContinue() == "" {
			break
		}
	}
	c.add(file{name: name, object: map[string]any{"items": found}})
	return nil
}

// chosen are the nodes with the highest prices, and the agents' pods.
func (c *collector) chosen(ctx context.Context) (nodes []string, pods []corev1.Pod, err error) {
	var leases coordinationv1.LeaseList
	if err := c.Client.List(ctx, &leases, client.InNamespace(c.System)); err != nil {
		return nil, nil, fmt.Errorf("list the Leases of the agents in namespace %s: %w", c.System, err)
	}
	prices := map[string]market.Price{}
	for i := range leases.Items {
		l := &leases.Items[i]
		if name, ok := kube.AgentLeaseNode(l); ok {
			m, _ := allocation.ParseNodeMarket(l.Annotations[kube.MarketKey]) // without one the price is 0
			nodes, prices[name] = append(nodes, name), m.Price
			c.names.of(name)
		}
	}
	slices.SortFunc(nodes, func(a, b string) int {
		return cmp.Or(cmp.Compare(prices[b], prices[a]), cmp.Compare(a, b))
	})
	if len(nodes) > c.options.Nodes {
		c.failed(fmt.Errorf("%d of %d nodes, those with the highest prices; --nodes changes that", c.options.Nodes, len(nodes)))
		nodes = nodes[:c.options.Nodes]
	}
	var list corev1.PodList
	if err := c.Client.List(ctx, &list, client.InNamespace(c.System)); err != nil {
		return nil, nil, fmt.Errorf("list the pods in namespace %s: %w", c.System, err)
	}
	return nodes, list.Items, nil
}

// share is an equal share of the time that is left, for the next of so many requests. One that gets no answer leaves the
// others their shares.
func share(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
}

func (c *collector) recordings(ctx context.Context) error {
	nodes, _, err := c.chosen(ctx)
	if err != nil {
		return err
	}
	for i, node := range nodes {
		from := past.Source{Node: node, Connect: func() (*cluster.Access, error) { return c.Access, nil }}
		turn, cancel := share(ctx, len(nodes)-i)
		rec, err := from.Fetch(turn)
		cancel()
		if err == nil {
			_, err = replay.Play(rec, func(f *replay.Frame) error {
				for _, n := range f.Names {
					c.names.of(n.Namespace)
					c.names.of(n.Name)
				}
				return nil
			})
		}
		if err != nil {
			c.failed(err)
			continue
		}
		c.add(file{name: "recordings/" + node + past.Extension, rec: rec})
	}
	return nil
}

// logs adds the logs of the controllers, and of the agents of the chosen nodes: of each container, and of the one before
// where it has restarted.
func (c *collector) logs(ctx context.Context) error {
	if c.Logs == nil {
		return errors.New("logs cannot be read here")
	}
	nodes, pods, err := c.chosen(ctx)
	if err != nil {
		return err
	}
	var sources []source
	for i := range pods {
		p := &pods[i]
		if of := role(p); of == "" || of == cluster.AgentName && !slices.Contains(nodes, p.Spec.NodeName) {
			continue
		}
		for _, container := range p.Spec.Containers {
			sources = append(sources, source{p, container.Name, false})
			for _, s := range p.Status.ContainerStatuses {
				if s.Name == container.Name && s.RestartCount > 0 {
					sources = append(sources, source{p, container.Name, true})
				}
			}
		}
	}
	for i, s := range sources {
		turn, cancel := share(ctx, len(sources)-i)
		c.log(turn, s)
		cancel()
	}
	return nil
}

// source is which container a log is of: the one that runs, or the one before.
type source struct {
	pod       *corev1.Pod
	container string
	previous  bool
}

func (c *collector) log(ctx context.Context, s source) {
	p, container := s.pod, s.container
	name := fmt.Sprintf("logs/%s-%s.log", p.Name, container)
	if s.previous {
		name = fmt.Sprintf("logs/%s-%s-before.log", p.Name, container)
	}
	data, err := c.Logs(ctx, p, container, s.previous, mostLog)
	if err != nil {
		c.failed(fmt.Errorf("log of pod %s/%s, container %s: %w", p.Namespace, p.Name, container, err))
		return
	}
	text := string(data)
	if len(text) > mostLog {
		text = text[len(text)-mostLog:]
	}
	if len(data) >= mostLog {
		c.failed(fmt.Errorf("%s has the last %d bytes only", name, mostLog))
	}
	c.names.learnLog(text)
	c.add(file{name: name, text: text})
}
