// Package objects is how an agent reaches the API server: its clients, and watches of the objects of its node
// that keep of each what a round needs.
//
// What it promises, a test of the same name in package agent:
//   - TrimChangesNoSnapshot: a snapshot of trimmed objects is that of whole ones.
package objects

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// Clients share one connection to the API server. Their scheme has only the types that the agent
// needs: the usual clientset has hundreds, and each costs memory on every node.
type Clients struct {
	Core        *rest.RESTClient // pods and nodes, as protobuf
	Leases      *rest.RESTClient // as protobuf
	Allocations *rest.RESTClient // PodAllocations and NodeAllocations, as JSON: the API server stores custom objects so
}

// Rate limits of the agent's requests, without watches and heartbeat. A burst is one decision for
// each pod of a full node.
const (
	requestsPerSecond = 50
	requestBurst      = 250
)

const protobuf = "application/vnd.kubernetes.protobuf"

// NewClients makes the clients. It sends no request.
func NewClients(cfg *rest.Config) (Clients, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.PodList{}, &corev1.Node{}, &corev1.NodeList{})
	scheme.AddKnownTypes(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(scheme, coordinationv1.SchemeGroupVersion)
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return Clients{}, err
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return Clients{}, fmt.Errorf("API server client: %w", err)
	}
	var c Clients
	for _, to := range []struct {
		client **rest.RESTClient
		gv     schema.GroupVersion
		path   string
		accept string
		qps    float32
	}{
		{&c.Core, corev1.SchemeGroupVersion, "/api", protobuf, requestsPerSecond},
		// no rate limit: the heartbeat never waits behind decisions
		{&c.Leases, coordinationv1.SchemeGroupVersion, "/apis", protobuf, -1},
		{&c.Allocations, v1alpha1.GroupVersion, "/apis", runtime.ContentTypeJSON, requestsPerSecond},
	} {
		own := rest.CopyConfig(cfg)
		own.GroupVersion, own.APIPath, own.NegotiatedSerializer = &to.gv, to.path, codecs
		own.ContentType, own.AcceptContentTypes = to.accept, to.accept+","+runtime.ContentTypeJSON
		own.QPS, own.Burst = to.qps, requestBurst
		if *to.client, err = rest.RESTClientForConfigAndClient(own, hc); err != nil {
			return Clients{}, fmt.Errorf("API server client for %s: %w", to.gv, err)
		}
	}
	return c, nil
}
