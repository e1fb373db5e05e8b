package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
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

// flags are those that every command has: kubectl's own, and where MBCAS lives.
type flags struct {
	loading   *clientcmd.ClientConfigLoadingRules
	overrides *clientcmd.ConfigOverrides
	all       bool
	system    string
	// connected replaces the connection in tests.
	connected *Access
}

func newFlags() *flags {
	return &flags{loading: clientcmd.NewDefaultClientConfigLoadingRules(), overrides: &clientcmd.ConfigOverrides{}}
}

func (f *flags) bind(root *cobra.Command) {
	set := root.PersistentFlags()
	set.StringVar(&f.loading.ExplicitPath, "kubeconfig", "", "kubeconfig file to use")
	clientcmd.BindOverrideFlags(f.overrides, set, clientcmd.RecommendedConfigOverrideFlags(""))
	set.StringVar(&f.system, "system-namespace", kube.SystemNamespace, "namespace that MBCAS runs in")
	// kubectl's rarer flags work, and are not shown in every help text.
	set.VisitAll(func(flag *pflag.Flag) {
		if usage, common := commonFlags[flag.Name]; common {
			flag.Usage = usage
		} else {
			flag.Hidden = true
		}
	})
}

var commonFlags = map[string]string{
	"kubeconfig":       "kubeconfig `file` to use",
	"context":          "kubeconfig context to use",
	"namespace":        "namespace to look at; the one of the context by default",
	"system-namespace": "namespace that MBCAS runs in",
	"request-timeout":  "how long one request may take, such as 10s; 0 means forever",
}

// scope adds -A to a command that can look at all namespaces.
func (f *flags) scope(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "look at all namespaces")
}

// connect makes the clients. Nothing is asked of the API server yet.
func (f *flags) connect() (*Access, error) {
	if f.connected != nil {
		a := *f.connected
		if f.overrides.Context.Namespace != "" {
			a.Namespace = f.overrides.Context.Namespace
		}
		if f.all {
			a.Namespace = ""
		}
		return &a, nil
	}
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.loading, f.overrides)
	rest, err := config.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("kubeconfig: none was found; name one with --kubeconfig or KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w; name another with --kubeconfig or KUBECONFIG", err)
	}
	rest.UserAgent = "kubectl-mbcas"
	rest.QPS, rest.Burst = 50, 100
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: namespace: %w", err)
	}
	if f.all {
		namespace = ""
	}
	c, err := client.New(rest, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", rest.Host, err)
	}
	k, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", rest.Host, err)
	}
	round := func(ctx context.Context, agent *corev1.Pod) ([]byte, error) {
		return k.CoreV1().Pods(agent.Namespace).ProxyGet("http", agent.Name, agentPort, "/debug/round", nil).DoRaw(ctx)
	}
	return &Access{Client: c, Discovery: k.Discovery(), Namespace: namespace, System: f.system, Now: time.Now, Round: round}, nil
}

// run connects and hands over; every command's RunE is this.
func (f *flags) run(do func(ctx context.Context, a *Access, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a, err := f.connect()
		if err != nil {
			return err
		}
		return do(cmd.Context(), a, args)
	}
}
