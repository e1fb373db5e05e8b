package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/forward"
	"github.com/mbcas/mbcas/internal/kube"
)

// flags are those that every command has: kubectl's own, and where MBCAS lives.
type flags struct {
	loading   *clientcmd.ClientConfigLoadingRules
	overrides *clientcmd.ConfigOverrides
	all       bool
	system    string
	// connected replaces the connection in tests.
	connected *cluster.Access
}

func newFlags() *flags {
	return &flags{loading: clientcmd.NewDefaultClientConfigLoadingRules(), overrides: &clientcmd.ConfigOverrides{}}
}

func (f *flags) bind(root *cobra.Command) {
	set := root.PersistentFlags()
	set.StringVar(&f.loading.ExplicitPath, "kubeconfig", "", "kubeconfig file to use")
	clientcmd.BindOverrideFlags(f.overrides, set, clientcmd.RecommendedConfigOverrideFlags(""))
	set.StringVar(&f.system, "system-namespace", kube.SystemNamespace, "namespace that MBCAS runs in")
	// The other flags of kubectl work too, and are hidden from the help texts.
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
	"namespace":        "namespace to use; that of the context by default",
	"system-namespace": "namespace that MBCAS runs in",
	"request-timeout":  "how long one request may take, such as 10s; 0 means no limit",
}

// allNamespacesFlag adds -A to a command that reads all namespaces.
func (f *flags) allNamespacesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "all namespaces")
}

// connect makes the clients. It sends no request.
func (f *flags) connect() (*cluster.Access, error) {
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
	rest, namespace, err := f.config()
	if err != nil {
		return nil, err
	}
	// Upgraded connections, as of forward, need no clock.
	timed, clock := clientrest.CopyConfig(rest), &cluster.Clock{}
	timed.Wrap(clock.Wrap)
	c, err := client.New(timed, client.Options{Scheme: cluster.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", rest.Host, err)
	}
	k, err := kubernetes.NewForConfig(timed)
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", rest.Host, err)
	}
	read := func(ctx context.Context, agent *corev1.Pod, path string) ([]byte, error) {
		pod := types.NamespacedName{Namespace: agent.Namespace, Name: agent.Name}
		return forward.Get(ctx, rest, pod, kube.AgentDebugPort, path)
	}
	return &cluster.Access{
		Client: c, Discovery: k.Discovery(), Namespace: namespace, System: f.system, Now: time.Now,
		Ahead: clock.Ahead,
		Round: func(ctx context.Context, agent *corev1.Pod) ([]byte, error) { return read(ctx, agent, "/debug/round") },
		Rounds: func(ctx context.Context, agent *corev1.Pod, after uint64) ([]byte, error) {
			return read(ctx, agent, fmt.Sprintf("/debug/rounds?after=%d", after))
		},
		Logs: func(ctx context.Context, p *corev1.Pod, container string, previous bool, most int64) ([]byte, error) {
			// The limit counts from the first of these lines, so it leaves room for long ones.
			lines, bytes := most/256, 4*most
			return k.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{
				Container: container, Previous: previous, TailLines: &lines, LimitBytes: &bytes,
			}).DoRaw(ctx)
		},
		Follow: func(ctx context.Context, p *corev1.Pod) (io.ReadCloser, error) {
			return k.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
		},
	}, nil
}

// config is that of the connection, with the namespace of the command.
func (f *flags) config() (*clientrest.Config, string, error) {
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.loading, f.overrides)
	rest, err := config.ClientConfig()
	if clientcmd.IsEmptyConfig(err) && f.loading.ExplicitPath != "" {
		return nil, "", fmt.Errorf("kubeconfig: %s names no cluster; name another with --kubeconfig", f.loading.ExplicitPath)
	}
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", errors.New("kubeconfig: none found; name one with --kubeconfig or KUBECONFIG")
	}
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w; name another with --kubeconfig or KUBECONFIG", err)
	}
	rest.UserAgent = "kubectl-mbcas"
	rest.QPS, rest.Burst = 50, 100
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: namespace: %w", err)
	}
	if f.all {
		namespace = ""
	}
	return rest, namespace, nil
}

// run is the RunE of a command that needs a connection.
func (f *flags) run(
	do func(ctx context.Context, a *cluster.Access, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a, err := f.connect()
		if err != nil {
			return err
		}
		err = do(cmd.Context(), a, args)
		if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" {
			return fmt.Errorf("%w; check that the API server runs, and that --kubeconfig or --context "+
				"names the right cluster", err)
		}
		return err
	}
}

// noArgs refuses arguments. For an unknown command it names the most similar ones.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasSubCommands() {
		return UsageError{Err: fmt.Errorf("%q takes no argument, got %q", cmd.CommandPath(), args[0])}
	}
	text := fmt.Sprintf("unknown command %q: see \"%s --help\"", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text = fmt.Sprintf("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return UsageError{Err: fmt.Errorf("%s", text)}
}

// podArgs accepts one pod name, or none if low is 0; "pod/web" means "web".
func podArgs(low int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			return UsageError{Err: fmt.Errorf("%q needs the name of a pod", cmd.CommandPath())}
		case len(args) > 1:
			return UsageError{Err: fmt.Errorf("%q takes one pod, got %d", cmd.CommandPath(), len(args))}
		}
		for i := range args {
			kind, name, ok := strings.Cut(args[i], "/")
			switch {
			case !ok:
			case name != "" && (kind == "pod" || kind == "pods" || kind == "po"):
				args[i] = name
			default:
				return UsageError{Err: fmt.Errorf("%q is not a pod: write its name or pod/NAME", args[i])}
			}
		}
		return nil
	}
}

func (f *flags) completePods(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.complete(cmd, &corev1.PodList{}, prefix)
}

// completeNamespaces completes a namespace, then a mode.
func (f *flags) completeNamespaces(
	cmd *cobra.Command, args []string, prefix string,
) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		f.all = true
		return f.complete(cmd, &corev1.NamespaceList{}, prefix)
	case 1:
		return modeNames, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (f *flags) complete(
	cmd *cobra.Command, list client.ObjectList, prefix string,
) (names []string, directive cobra.ShellCompDirective) {
	a, err := f.connect()
	if err == nil {
		err = a.Client.List(cmd.Context(), list, client.InNamespace(a.Namespace))
	}
	if err == nil {
		err = meta.EachListItem(list, func(o runtime.Object) error {
			if object, ok := o.(client.Object); ok && strings.HasPrefix(object.GetName(), prefix) {
				names = append(names, object.GetName())
			}
			return nil
		})
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
