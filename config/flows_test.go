package config_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// Priority levels of config/base, and the one of Kubernetes for other service accounts.
const (
	heartbeats         = "mbcas-heartbeats"
	agentRequests      = "mbcas-agents"
	controllerRequests = "mbcas-controller"
	otherAccounts      = "workload-low"
)

// levelled is a client with the token of a service account that notes the priority level of its last answer.
type levelled struct {
	client.Client
	next http.RoundTripper
	uid  atomic.Value // string: of the PriorityLevelConfiguration
}

func (l *levelled) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err == nil {
		l.uid.Store(resp.Header.Get("X-Kubernetes-PF-PriorityLevel-UID"))
	}
	return resp, err
}

func (e *environment) levelled(t *testing.T, account client.ObjectKey, pod string) *levelled {
	t.Helper()
	token, err := apiserver.Token(t.Context(), e.Client, account, e.pods[system+"/"+pod])
	must.Succeed(t, err)
	l := &levelled{}
	config := rest.AnonymousClientConfig(e.Config)
	config.BearerToken, config.QPS = token, -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		l.next = next
		return l
	})
	l.Client, err = client.New(config, client.Options{Scheme: e.Client.Scheme()})
	must.Succeed(t, err)
	return l
}

// level is the priority level of the client's last answer.
func (e *environment) level(t *testing.T, l *levelled) string {
	t.Helper()
	var all flowcontrolv1.PriorityLevelConfigurationList
	must.Succeed(t, e.Client.List(t.Context(), &all))
	for _, p := range all.Items {
		if string(p.UID) == l.uid.Load() {
			return p.Name
		}
	}
	return fmt.Sprintf("no level has the UID %v", l.uid.Load())
}

// heartbeat reads the Lease of a node, as its agent does. The answer does not matter, only what it waits for.
func heartbeat(ctx context.Context, c client.Client) error {
	return client.IgnoreNotFound(c.Get(ctx, client.ObjectKey{Namespace: system, Name: "mbcas-agent-node-1"}, &coordinationv1.Lease{}))
}

// TestFlows: heartbeats, other requests of agents, and the controller each have a priority level of their own, and no
// other account is in it.
func TestFlows(t *testing.T) {
	e := open(t)
	agent, controller := e.levelled(t, agentAccount, "agent-1"), e.levelled(t, controllerAccount, "controller")
	namesake := e.levelled(t, client.ObjectKey{Namespace: "shop", Name: "mbcas-controller"}, "")
	lists := func(o client.ObjectList, opts ...client.ListOption) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error { return c.List(ctx, o, opts...) }
	}
	for _, tc := range []struct {
		what string
		by   *levelled
		send func(context.Context, client.Client) error
		want string
	}{
		{"an agent's Lease", agent, heartbeat, heartbeats},
		{"an agent's pods", agent, lists(&corev1.PodList{}), agentRequests},
		{"an agent's other Leases", agent, lists(&coordinationv1.LeaseList{}, client.InNamespace("shop")), agentRequests},
		{"the controller's Lease", controller, heartbeat, controllerRequests},
		{"the controller's pods", controller, lists(&corev1.PodList{}), controllerRequests},
		{"an account of the same name in another namespace", namesake, lists(&corev1.PodList{}), otherAccounts},
	} {
		apiserver.Eventually(t, tc.what+" has its level", func() (bool, any) { // the API server reads new levels in a second
			_ = tc.send(t.Context(), tc.by.Client)
			got := e.level(t, tc.by)
			return got == tc.want, got
		})
	}
}

// gauge is a metric of the API server about a priority level, added up over its flows.
func (e *environment) gauge(t *testing.T, name, level string) int {
	t.Helper()
	c, err := kubernetes.NewForConfig(e.Config)
	must.Succeed(t, err)
	text, err := c.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must.Succeed(t, err)
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_flowcontrol_"+name+"{") && strings.Contains(line, `priority_level="`+level+`"`) {
			more, err := strconv.Atoi(strings.Fields(line)[1])
			must.Succeed(t, err)
			n += more
		}
	}
	return n
}

// waiting is how many requests of agents wait in the queues of their priority level.
func (e *environment) waiting(t *testing.T) int {
	t.Helper()
	return e.gauge(t, "current_inqueue_requests", agentRequests)
}

// TestFloodWaitsAlone: when the API server is slow with what one agent sends, that waits in its own level. The
// heartbeats of this and other agents, and the controller's requests, are answered meanwhile.
func TestFloodWaitsAlone(t *testing.T) {
	const flood, beats = 30, 20
	e := open(t)
	agent, other := e.levelled(t, agentAccount, "agent-1"), e.levelled(t, agentAccount, "agent-2")
	controller := e.levelled(t, controllerAccount, "controller")

	// Clients ask for the API's resources first.
	must.Succeed(t, decide(web)(call{t.Context(), e, client.NewDryRunClient(agent.Client)}))
	must.Succeed(t, heartbeat(t.Context(), agent.Client))
	must.Succeed(t, heartbeat(t.Context(), other.Client))
	must.Succeed(t, controller.List(t.Context(), &corev1.PodList{}))
	// Before the webhook is there: what it holds up without that bound does not wait, but hangs until its timeout.
	e.narrow(t, agentRequests)
	release, patches, none := make(chan struct{}), allocations(), admissionv1.SideEffectClassNone
	var hanging atomic.Bool
	answer, wait := apiserver.Review(admissionreview.AdmissionResponse{Allowed: true}), int32(30)
	e.CreateUntilEnd(t, &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hang"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "hang.example.com", Rules: []admissionv1.RuleWithOperations{patches}, SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: &wait, NamespaceSelector: apiserver.Within("shop"),
			ClientConfig: apiserver.Webhook(t, func(w http.ResponseWriter, r *http.Request) {
				hanging.Store(true)
				<-release
				answer(w, r)
			}),
		}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range flood {
		running.Go(func() {
			for ctx.Err() == nil { // the first may pass before the webhook is known
				_ = decide(web)(call{ctx, e, client.NewDryRunClient(agent.Client)})
			}
		})
	}
	defer func() {
		cancel()
		close(release)
		running.Wait()
	}()
	apiserver.Eventually(t, "the flood waits", func() (bool, any) {
		n := e.waiting(t)
		return hanging.Load() && n >= flood/2, n
	})
	most := 0 // what has waited for 15 s is refused, and comes again a second later
	for range beats {
		most = max(most, e.waiting(t))
		must.Succeed(t, heartbeat(t.Context(), agent.Client))
		must.Succeed(t, heartbeat(t.Context(), other.Client))
		must.Succeed(t, controller.List(t.Context(), &corev1.PodList{}))
	}
	if most < flood/2 {
		t.Errorf("at most %d requests of the flood waited beside the heartbeats of two agents, want %d", most, flood/2)
	}
}

// allocations are the writes of PodAllocations.
func allocations() admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Update},
		Rule: admissionv1.Rule{
			APIGroups: []string{"allocation.mbcas.io"}, APIVersions: []string{"v1alpha1"}, Resources: []string{"podallocations"},
		},
	}
}

// narrow has a priority level serve a few requests at a time until the test ends. With no share it would serve none.
func (e *environment) narrow(t *testing.T, name string) {
	t.Helper()
	none, least := int32(0), int32(1)
	set := func(change func(*flowcontrolv1.LimitedPriorityLevelConfiguration)) {
		var level flowcontrolv1.PriorityLevelConfiguration
		must.Succeed(t, e.Client.Get(context.Background(), client.ObjectKey{Name: name}, &level))
		change(level.Spec.Limited)
		must.Succeed(t, e.Client.Update(context.Background(), &level))
	}
	var before flowcontrolv1.LimitedPriorityLevelConfiguration
	set(func(limits *flowcontrolv1.LimitedPriorityLevelConfiguration) {
		before = *limits.DeepCopy()
		limits.NominalConcurrencyShares, limits.LendablePercent, limits.BorrowingLimitPercent = &least, &none, &none
	})
	t.Cleanup(func() { set(func(limits *flowcontrolv1.LimitedPriorityLevelConfiguration) { *limits = before }) })
	apiserver.Eventually(t, "the API server narrows "+name, func() (bool, any) {
		seats := e.gauge(t, "current_limit_seats", name)
		return seats > 0 && seats < 5, seats
	})
}
