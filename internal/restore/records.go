package restore

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

const pageSize = 500 // objects that are read in one request

// records are the declared limits of pods, and no more of their records: they are all in memory.
type records struct {
	limits map[types.UID][]v1alpha1.ContainerLimit
	names  map[string]string // of containers, each once
	// templates are those that were read for pods without a record.
	templates map[templateKey]map[string]cpu.Milli
}

// readRecords reads the declared limits of all pods page by page: those in the ledger, and those in
// PodAllocations, which win.
func readRecords(ctx context.Context, c client.Reader, namespace string) (*records, error) {
	r := &records{map[types.UID][]v1alpha1.ContainerLimit{}, map[string]string{}, map[templateKey]map[string]cpu.Milli{}}
	ledgers := []client.ListOption{client.InNamespace(namespace), client.HasLabels{kube.LedgerLabel}}
	err := eachPage(ctx, c, func(page *corev1.ConfigMapList) error {
		for i := range page.Items {
			for uid := range page.Items[i].Data {
				if e, ok := ReadEntry(&page.Items[i], types.UID(uid)); ok {
					r.add(types.UID(uid), e.Limits)
				}
			}
		}
		return nil
	}, ledgers...)
	if err != nil {
		return nil, fmt.Errorf("read the records of declared limits, ConfigMaps of namespace %s: %w", namespace, err)
	}
	err = eachPage(ctx, c, func(page *v1alpha1.PodAllocationList) error {
		for i := range page.Items {
			if pa := &page.Items[i]; len(pa.Status.DeclaredLimits) > 0 {
				r.add(pa.Spec.PodRef.UID, pa.Status.DeclaredLimits)
			}
		}
		return nil
	})
	if err != nil && !kube.NotServed(err) {
		return nil, fmt.Errorf("read the records of declared limits, PodAllocations: %w", err)
	}
	return r, nil
}

func (r *records) add(uid types.UID, limits []v1alpha1.ContainerLimit) {
	kept := make([]v1alpha1.ContainerLimit, len(limits))
	for i, l := range limits {
		name, ok := r.names[l.Name]
		if !ok {
			name = l.Name
			r.names[name] = name
		}
		kept[i] = v1alpha1.ContainerLimit{Name: name, CPULimit: l.CPULimit}
	}
	r.limits[uid] = kept
}

// eachPage lists objects page by page, each in a list of its own. Where the pages take so long that
// the API server has forgotten their version, it goes on with the present one: objects may then be
// seen twice, or not at all.
func eachPage[L any, P interface {
	*L
	client.ObjectList
}](ctx context.Context, c client.Reader, take func(P) error, opts ...client.ListOption) error {
	for more := ""; ; {
		page := P(new(L))
		err := c.List(ctx, page, append(opts, client.Limit(pageSize), client.Continue(more))...)
		var status apierrors.APIStatus
		if apierrors.IsResourceExpired(err) && errors.As(err, &status) && status.Status().Continue != "" {
			more = status.Status().Continue
			continue
		}
		if err == nil {
			err = take(page)
		}
		if more = page.GetContinue(); err != nil || more == "" {
			return err
		}
	}
}
