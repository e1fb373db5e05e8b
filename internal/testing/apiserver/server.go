// Package apiserver gives tests a real API server with the project's CRD, and a stand-in for the
// kubelet that it lacks. It is for tests only. A package that uses it has
//
//	func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }
//
// so that one control plane serves all its tests and is stopped after them.
package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// Server is a running API server with the project's CRD. Its default admission plugins, policies
// and RBAC are at work; there is no controller manager (so the status of a ResourceQuota stays empty),
// no scheduler, no kubelet and, as envtest wants it, no ServiceAccount admission.
type Server struct {
	Config *rest.Config // of an administrator
	Client client.WithWatch
	env    *envtest.Environment
}

// VersionKey in the environment makes the API server behave as an older one, such as 1.33: with the
// features, APIs and CEL functions of that version, though with the code of its own.
const VersionKey = "MBCAS_APISERVER_VERSION"

// shared is the one server of a test program. Programs, not packages, have it: each package's tests
// are a program of their own.
var shared struct {
	sync.Once
	server *Server
	err    error
}

// Start is the server of this test program, started when first asked for. Where its programs are
// not at hand the test is skipped, or fails if CI=true.
func Start(t testing.TB) *Server {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		const why = `no API server to test against: set KUBEBUILDER_ASSETS="$(bin/mbcas-cluster assets)"`
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	shared.Do(func() { shared.server, shared.err = start(assets) })
	if shared.err != nil {
		t.Fatalf("start an API server from KUBEBUILDER_ASSETS=%s: %v", assets, shared.err)
	}
	return shared.server
}

// Main runs the tests of a package, stops the server if one was started, and returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if shared.server == nil {
		return code
	}
	return shared.server.stop(code)
}

// stop ends the control plane and waits for it. It returns the exit code, which is a failure if
// that fails.
func (s *Server) stop(code int) int {
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
		return max(code, 1)
	}
	return code
}

func start(assets string) (*Server, error) { return Open(assets, func(*envtest.Environment) {}) }

// quiet sets a log of the library, which else complains with a stack trace.
var quiet = sync.OnceFunc(func() { log.SetLogger(logr.Discard()) })

// Open starts a control plane for a program that is no test, and that closes it. tune may change how
// it runs.
func Open(assets string, tune func(*envtest.Environment)) (*Server, error) {
	quiet()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	never := false
	env := &envtest.Environment{
		UseExistingCluster:       &never, // whatever the environment says: tests break things
		BinaryAssetsDirectory:    assets,
		CRDDirectoryPaths:        []string{filepath.Join(root, "config", "crd")},
		ErrorIfCRDPathMissing:    true,
		Scheme:                   scheme,
		ControlPlaneStartTimeout: 2 * time.Minute, // it takes seconds; a busy machine takes longer
		ControlPlaneStopTimeout:  30 * time.Second,
	}
	server, etcd, remove, err := dieWithParent(assets)
	if err != nil {
		return nil, err
	}
	defer remove()
	env.ControlPlane.GetAPIServer().Path = server
	// A kubelet may do what it may on a real cluster, and no more.
	env.ControlPlane.GetAPIServer().Configure().Set("authorization-mode", "Node", "RBAC").Append("enable-admission-plugins", "NodeRestriction")
	if v := os.Getenv(VersionKey); v != "" {
		env.ControlPlane.GetAPIServer().Configure().Set("emulated-version", v)
	}
	env.ControlPlane.Etcd = &envtest.Etcd{Path: etcd}
	tune(env)
	config, err := env.Start()
	if err != nil {
		return nil, errors.Join(err, env.Stop())
	}
	config.QPS = -1 // a test's own client has no rate limit
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, errors.Join(err, env.Stop())
	}
	return &Server{Config: config, Client: c, env: env}, nil
}

// Close ends the control plane and waits for it.
func (s *Server) Close() error { return s.env.Stop() }

// Etcd is the address of etcd, which asks for no certificate.
func (s *Server) Etcd() string { return s.env.ControlPlane.Etcd.URL.String() }

// dieWithParent makes programs that run the control plane's and die with this process, so that
// nothing is left when a test is killed or times out, which ends it without a chance to stop
// anything. Where setpriv cannot do that they are the programs themselves.
func dieWithParent(assets string) (apiserver, etcd string, remove func(), err error) {
	apiserver, etcd = filepath.Join(assets, "kube-apiserver"), filepath.Join(assets, "etcd")
	if exec.Command("setpriv", "--pdeathsig", "KILL", "true").Run() != nil {
		return apiserver, etcd, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "apitest-")
	if err != nil {
		return "", "", nil, err
	}
	for _, program := range []*string{&apiserver, &etcd} {
		script := filepath.Join(dir, filepath.Base(*program))
		text := fmt.Sprintf("#!/bin/sh\nexec setpriv --pdeathsig KILL '%s' \"$@\"\n", *program)
		if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
			return "", "", nil, errors.Join(err, os.RemoveAll(dir))
		}
		*program = script
	}
	return apiserver, etcd, func() { os.RemoveAll(dir) }, nil
}

// moduleRoot is the folder of go.mod, above the folder that go test runs in.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working folder: the CRD cannot be found")
		}
		dir = filepath.Dir(dir)
	}
}

// Version is the version of the API server, such as "v1.36.3".
func (s *Server) Version(t testing.TB) string {
	t.Helper()
	return s.version(t).GitVersion
}

// Minor is the minor version that the API server is of or behaves as, such as 36 of 1.36.3.
func (s *Server) Minor(t testing.TB) int {
	t.Helper()
	v := s.version(t)
	minor, err := strconv.Atoi(strings.TrimSuffix(cmp.Or(v.EmulationMinor, v.Minor), "+"))
	if err != nil || v.Major != "1" {
		t.Fatalf("version of the API server: %+v", v)
	}
	return minor
}

func (s *Server) version(t testing.TB) *version.Info {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	v, err := d.ServerVersionWithContext(t.Context())
	if err != nil {
		t.Fatalf("version of the API server: %v", err)
	}
	return v
}

// Namespace is a new namespace of the test's own. It stays: no controller here can empty one.
func (s *Server) Namespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{}
	ns.GenerateName = "test-"
	if err := s.Client.Create(t.Context(), ns); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	return ns.Name
}

// Install creates the objects of manifests of config, strictly as they are, or all in one namespace.
func (s *Server) Install(t testing.TB, namespace string, files ...string) {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, "config", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range strings.Split(string(text), "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if namespace != "" {
				o.SetNamespace(namespace)
			}
			if err := s.Client.Create(t.Context(), o, client.FieldValidation("Strict")); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
}
