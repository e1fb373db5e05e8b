// Package cluster reads from the API server, and from agents through it, what the commands need.
package cluster

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
)

// Access is what a command works with once it knows its cluster.
type Access struct {
	Client    client.Client
	Discovery Discovery
	// Namespace is the one that the command line or the kubeconfig names; "" means all.
	Namespace string
	// System is the namespace that MBCAS itself runs in.
	System string
	Now    func() time.Time
	// Round is the last round of an agent's node as its pod tells it on /debug/round.
	Round func(ctx context.Context, agent *corev1.Pod) ([]byte, error)
}

// Discovery is what the commands ask an API server about itself.
type Discovery interface {
	podresize.Discovery
	ServerVersionWithContext(ctx context.Context) (*version.Info, error)
}

// Scheme knows the kinds that the commands read and write.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two kinds of one name: our own mistake
		}
	}
	return s
}

// What the manifests call the parts of an installation.
const (
	ControllerName = "mbcas-controller" // Deployment and its service account
	AgentName      = "mbcas-agent"      // DaemonSet
	AgentPort      = "9090"
	CRDName        = "podallocations.allocation.mbcas.io"
	SignalCRDName  = "demandsignals.allocation.mbcas.io"
)

// OfWorkload says whether a pod belongs to the Deployment or DaemonSet of that name.
func OfWorkload(pod *corev1.Pod, name string) bool { return strings.HasPrefix(pod.Name, name+"-") }
