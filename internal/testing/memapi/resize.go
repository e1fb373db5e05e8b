package memapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// resize changes the resources of a pod's containers, and nothing else.
func (s *Server) resize(w write, current, changed client.Object) (client.Object, *apierrors.StatusError) {
	before, asked := current.(*corev1.Pod), changed.(*corev1.Pod)
	next := before.DeepCopy()
	for i := range next.Spec.Containers {
		next.Spec.Containers[i].Resources = asked.Spec.Containers[i].Resources
	}
	for i := range next.Spec.InitContainers {
		next.Spec.InitContainers[i].Resources = asked.Spec.InitContainers[i].Resources
	}
	if errs := invalid(before, next); len(errs) > 0 {
		return nil, apierrors.NewInvalid(groupKind(w.kind), w.name.Name, errs)
	}
	if s.objects[key{"nodes", types.NamespacedName{Name: before.Spec.NodeName}}] == nil {
		return nil, apierrors.NewForbidden(w.kind.resource(), w.name.Name, fmt.Errorf("node %q not found", before.Spec.NodeName))
	}
	if s.Admit != nil {
		if refusal := s.Admit(before, next); refusal != nil {
			return nil, refusal
		}
	}
	charges, refusal := s.charge(w, before, next)
	if refusal != nil {
		return nil, refusal
	}
	if !w.dry {
		for _, q := range charges {
			s.store(write{actor: "quota admission", kind: mustKind(q), verb: "update", sub: "status"}, s.objects[key{"resourcequotas", client.ObjectKeyFromObject(q)}], q)
		}
	}
	return s.store(w, current, next), nil
}

func mustKind(o client.Object) Kind {
	k, _ := kindOf(o)
	return k
}

// invalid are what the API server does not store.
func invalid(before, after *corev1.Pod) (errs field.ErrorList) {
	for i, c := range after.Spec.Containers {
		path := field.NewPath("spec", "containers").Index(i).Child("resources")
		limit, request := c.Resources.Limits[corev1.ResourceCPU], c.Resources.Requests[corev1.ResourceCPU]
		_, had := before.Spec.Containers[i].Resources.Limits[corev1.ResourceCPU]
		switch {
		case had && limit.IsZero():
			errs = append(errs, field.Forbidden(path.Child("limits"), "resource limits cannot be removed"))
		case !limit.IsZero() && limit.Cmp(request) < 0:
			errs = append(errs, field.Invalid(path.Child("requests"), request.String(), "must be less than or equal to cpu limit of "+limit.String()))
		}
	}
	return errs
}

// charge is what a resize adds to the quotas of its namespace. A decrease is credited by the quota
// controller alone.
func (s *Server) charge(w write, before, after *corev1.Pod) (charged []*corev1.ResourceQuota, refusal *apierrors.StatusError) {
	more := total(after) - total(before)
	if more <= 0 {
		return nil, nil
	}
	for _, q := range All[*corev1.ResourceQuota](s) {
		hard, bounds := q.Status.Hard[corev1.ResourceLimitsCPU]
		if q.Namespace != before.Namespace || !bounds {
			continue
		}
		used := q.Status.Used[corev1.ResourceLimitsCPU]
		if used.MilliValue()+more > hard.MilliValue() {
			return nil, apierrors.NewForbidden(w.kind.resource(), w.name.Name, fmt.Errorf(
				"exceeded quota: %s, requested: limits.cpu=%dm, used: limits.cpu=%s, limited: limits.cpu=%s", q.Name, more, used.String(), hard.String()))
		}
		q = q.DeepCopy()
		q.Status.Used[corev1.ResourceLimitsCPU] = *resource.NewMilliQuantity(used.MilliValue()+more, resource.DecimalSI)
		charged = append(charged, q)
	}
	return charged, nil
}

// total is the sum of a pod's CPU limits in thousandths.
func total(pod *corev1.Pod) (sum int64) {
	for _, c := range pod.Spec.Containers {
		limit := c.Resources.Limits[corev1.ResourceCPU]
		sum += limit.MilliValue()
	}
	return sum
}

// Credit does what the quota controller does: it counts the pods.
func (s *Server) Credit() {
	for _, q := range All[*corev1.ResourceQuota](s) {
		var used int64
		for _, p := range All[*corev1.Pod](s) {
			if p.Namespace == q.Namespace {
				used += total(p)
			}
		}
		Change(s, "quota controller", q.Namespace, q.Name, func(q *corev1.ResourceQuota) {
			q.Status.Hard = q.Spec.Hard.DeepCopy()
			q.Status.Used = corev1.ResourceList{corev1.ResourceLimitsCPU: *resource.NewMilliQuantity(used, resource.DecimalSI)}
		})
	}
}

// writer is the manager that last changed a container's limit, and when.
type writer struct {
	manager string
	at      time.Time
}

// noteManagers notes which manager changed the limit of each container.
func (s *Server) noteManagers(w write, before, after *corev1.Pod) {
	if w.sub != "resize" {
		return
	}
	writers := maps.Clone(s.writers[after.UID])
	for i, c := range after.Spec.Containers {
		limit := c.Resources.Limits[corev1.ResourceCPU]
		if limit.Cmp(before.Spec.Containers[i].Resources.Limits[corev1.ResourceCPU]) != 0 {
			writers[c.Name] = writer{w.manager, s.Now()}
		}
	}
	s.setManagers(after, writers)
	if !w.dry {
		s.writers[after.UID] = writers
	}
}

// setManagers writes managedFields: the creator's, and those of resizes.
func (s *Server) setManagers(pod *corev1.Pod, writers map[string]writer) {
	entry := func(manager, sub string, at time.Time, containers map[string]any) metav1.ManagedFieldsEntry {
		raw, err := json.Marshal(map[string]any{"f:spec": map[string]any{"f:containers": containers}})
		if err != nil {
			panic(err) // it is maps of strings
		}
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: new(metav1.NewTime(at.Truncate(time.Second))),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw)), Subresource: sub,
		}
	}
	of, created, last := map[string]map[string]any{}, map[string]any{}, map[string]time.Time{}
	for _, c := range pod.Spec.Containers {
		name := fmt.Sprintf(`k:{"name":%q}`, c.Name)
		limit := map[string]any{"f:resources": map[string]any{"f:limits": map[string]any{"f:cpu": map[string]any{}}}}
		w := writers[c.Name]
		if w.manager == "" {
			created[name] = limit
			continue
		}
		created[name] = map[string]any{".": map[string]any{}}
		if of[w.manager] == nil {
			of[w.manager] = map[string]any{}
		}
		of[w.manager][name] = limit
		if w.at.After(last[w.manager]) {
			last[w.manager] = w.at
		}
	}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{
		entry("kube-controller-manager", "", pod.CreationTimestamp.Time, created),
	}
	for _, manager := range slices.Sorted(maps.Keys(of)) {
		pod.ManagedFields = append(pod.ManagedFields, entry(manager, "resize", last[manager], of[manager]))
	}
}

// Resize changes CPU limits as another writer does.
func (s *Server) Resize(actor string, pod *corev1.Pod, limits map[string]int64) error {
	next := pod.DeepCopy()
	for i := range next.Spec.Containers {
		if m, ok := limits[next.Spec.Containers[i].Name]; ok {
			next.Spec.Containers[i].Resources.Limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(m, resource.DecimalSI)
		}
	}
	w := write{actor: actor, manager: actor, kind: mustKind(pod), verb: "patch", sub: "resize", name: client.ObjectKeyFromObject(pod)}
	_, err := s.update(w, pod, next)
	return asError(err)
}

// FailedWebhook is the answer while a webhook cannot be reached.
func FailedWebhook() *apierrors.StatusError {
	return apierrors.NewInternalError(fmt.Errorf(
		`failed calling webhook "check.example.com": failed to call webhook: Post "https://check.example.com": dial tcp: connect: connection refused`))
}

// DeniedByWebhook is the answer where a webhook refuses.
func DeniedByWebhook() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: `admission webhook "check.example.com" denied the request: not on my watch`,
	}}
}
