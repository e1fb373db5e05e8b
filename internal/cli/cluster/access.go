// Package cluster reads from the API server, and through it from agents, what the commands need.
package cluster

import (
	"context"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
)

// Access is a command's connection to its cluster.
type Access struct {
	Client    client.Client
	Discovery Discovery
	// Namespace is that of the command line or the kubeconfig; "" means all.
	Namespace string
	// System is the namespace that MBCAS runs in.
	System string
	Now    func() time.Time
	// Ahead is how far the clock of the API server is ahead of Now; nil: not at all. See Clock.
	Ahead func() time.Duration
	// Round reads /debug/round of an agent's pod, through pods/portforward: the last round of its node.
	Round func(ctx context.Context, agent *corev1.Pod) ([]byte, error)
	// Rounds reads /debug/rounds in the same way: the recording of its node, or the part after a minute.
	Rounds func(ctx context.Context, agent *corev1.Pod, after uint64) ([]byte, error)
	// Logs reads the end of a container's log, of about so many bytes; previous: of the container
	// before it restarted.
	Logs func(ctx context.Context, pod *corev1.Pod, container string, previous bool, most int64) ([]byte, error)
	// Follow reads the log of a pod's only container from its start until the container ends.
	Follow func(ctx context.Context, pod *corev1.Pod) (io.ReadCloser, error)
}

// Discovery is what an API server says about itself.
type Discovery interface {
	podresize.Discovery
	ServerVersionWithContext(ctx context.Context) (*version.Info, error)
}

// Scheme has the kinds that the commands read and write.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// Names of the parts of an installation in the manifests.
const (
	ControllerName = "mbcas-controller" // Deployment and its service account
	AgentName      = "mbcas-agent"      // DaemonSet
	CRDName        = "podallocations.allocation.mbcas.io"
	NodeCRDName    = "nodeallocations.allocation.mbcas.io"
	SignalCRDName  = "demandsignals.allocation.mbcas.io"
	DefaultLimits  = "mbcas-default-limits" // MutatingAdmissionPolicy
)

// OfWorkload says whether a pod belongs to the Deployment or DaemonSet of that name.
func OfWorkload(pod *corev1.Pod, name string) bool { return strings.HasPrefix(pod.Name, name+"-") }

// AgentOn is the agent's pod on a node; nil if there is none. Of two that run it is the newer one, which holds the node's Lease. A
// pod that does not run yet, or has ended, as one that was evicted, answers nothing: it counts only where there is no other.
func AgentOn(pods []corev1.Pod, node string) (agent *corev1.Pod) {
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == node && OfWorkload(p, AgentName) && p.DeletionTimestamp == nil && (agent == nil || answersFirst(p, agent)) {
			agent = p
		}
	}
	return agent
}

// answersFirst says whether the agent of a pod is asked rather than that of another one.
func answersFirst(p, other *corev1.Pod) bool {
	answers := func(p *corev1.Pod) int {
		switch p.Status.Phase {
		case corev1.PodRunning:
			return 2
		case corev1.PodFailed, corev1.PodSucceeded:
			return 0
		}
		return 1
	}
	if a, b := answers(p), answers(other); a != b {
		return a > b
	}
	return other.CreationTimestamp.Before(&p.CreationTimestamp)
}
