package objectcache

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// Options keep in memory what decisions need of a cluster's objects, and no more. namespace is that of MBCAS.
func Options(namespace string) cache.Options {
	own := map[string]cache.Config{namespace: {}}
	return cache.Options{
		DefaultTransform: NewTransform(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}:     {Namespaces: own},
			&coordinationv1.Lease{}: {Namespaces: own},
			// They are large, and nothing changes them.
			&v1alpha1.NodeAllocation{}: {UnsafeDisableDeepCopy: ptr.To(true)},
		},
	}
}
