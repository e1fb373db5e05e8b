package agent

import (
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// clients speak to the API server over one connection. They know the few types that the agent needs:
// the usual clientset knows hundreds, and each costs memory on every node.
type clients struct {
	core        *rest.RESTClient // pods and nodes, as protobuf
	leases      *rest.RESTClient // as protobuf
	allocations *rest.RESTClient // JSON, as the API server keeps custom objects
}

// What an agent may ask of the API server, watches and heartbeat aside. A burst is one decision for each pod of a full node.
const (
	requestsPerSecond = 50
	requestBurst      = 250
)

const protobuf = "application/vnd.kubernetes.protobuf"

func newClients(cfg *rest.Config) (clients, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.Node{}, &corev1.NodeList{})
	scheme.AddKnownTypes(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(scheme, coordinationv1.SchemeGroupVersion)
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return clients{}, err
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return clients{}, fmt.Errorf("API server client: %w", err)
	}
	var c clients
	for _, to := range []struct {
		client **rest.RESTClient
		gv     schema.GroupVersion
		path   string
		accept string
		qps    float32
	}{
		{&c.core, corev1.SchemeGroupVersion, "/api", protobuf, requestsPerSecond},
		{&c.leases, coordinationv1.SchemeGroupVersion, "/apis", protobuf, -1}, // the heartbeat never waits behind decisions
		{&c.allocations, v1alpha1.GroupVersion, "/apis", runtime.ContentTypeJSON, requestsPerSecond},
	} {
		if *to.client, err = newClient(cfg, hc, to.gv, to.path, to.accept, to.qps, codecs); err != nil {
			return clients{}, fmt.Errorf("API server client for %s: %w", to.gv, err)
		}
	}
	return c, nil
}

func newClient(cfg *rest.Config, hc *http.Client, gv schema.GroupVersion, path, accept string, qps float32, codecs runtime.NegotiatedSerializer) (*rest.RESTClient, error) {
	c := rest.CopyConfig(cfg)
	c.GroupVersion, c.APIPath, c.NegotiatedSerializer = &gv, path, codecs
	c.ContentType, c.AcceptContentTypes = accept, accept+","+runtime.ContentTypeJSON
	c.QPS, c.Burst = qps, requestBurst
	return rest.RESTClientForConfigAndClient(c, hc)
}
