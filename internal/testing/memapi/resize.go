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
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// resize changes the resources of a pod's containers, and nothing else.
func (s *Server) resize(w write, current, changed client.Object) (client.Object, *apierrors.StatusError) {
	before, asked := current.(*corev1.Pod), changed.(*corev1.Pod)
	next := before.DeepCopy()
	from := containers(asked)
	for i, c := range containers(next) {
		c.Resources = from[i].Resources
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

// containers are those of a pod and then its init containers.
func containers(pod *corev1.Pod) (list []*corev1.Container) {
	for i := range pod.Spec.Containers {
		list = append(list, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		list = append(list, &pod.Spec.InitContainers[i])
	}
	return list
}

// invalid are what the API server does not store.
func invalid(before, after *corev1.Pod) (errs field.ErrorList) {
	was := containers(before)
	for i, c := range containers(after) {
		path := field.NewPath("spec", "containers").Index(i).Child("resources")
		if n := i - len(after.Spec.Containers); n >= 0 {
			path = field.NewPath("spec", "initContainers").Index(n).Child("resources")
		}
		limit, request := c.Resources.Limits[corev1.ResourceCPU], c.Resources.Requests[corev1.ResourceCPU]
		_, had := was[i].Resources.Limits[corev1.ResourceCPU]
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

// total is the pod's CPU limit in thousandths, as quotas count it.
func total(pod *corev1.Pod) int64 {
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	return limits.Cpu().MilliValue()
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
	writers, was := maps.Clone(s.writers[after.UID]), containers(before)
	for i, c := range containers(after) {
		limit := c.Resources.Limits[corev1.ResourceCPU]
		if limit.Cmp(was[i].Resources.Limits[corev1.ResourceCPU]) != 0 {
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
	entry := func(manager, sub string, at time.Time, spec map[string]any) metav1.ManagedFieldsEntry {
		raw, err := json.Marshal(map[string]any{"f:spec": spec})
		if err != nil {
			panic(err) // it is maps of strings
		}
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: new(metav1.NewTime(at.Truncate(time.Second))),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw)), Subresource: sub,
		}
	}
	of, created, last := map[string]map[string]any{}, map[string]any{}, map[string]time.Time{}
	add := func(spec map[string]any, list, name string, fields map[string]any) {
		if spec[list] == nil {
			spec[list] = map[string]any{}
		}
		spec[list].(map[string]any)[fmt.Sprintf(`k:{"name":%q}`, name)] = fields
	}
	for i, c := range containers(pod) {
		list := "f:containers"
		if i >= len(pod.Spec.Containers) {
			list = "f:initContainers"
		}
		limit := map[string]any{"f:resources": map[string]any{"f:limits": map[string]any{"f:cpu": map[string]any{}}}}
		w := writers[c.Name]
		if w.manager == "" {
			add(created, list, c.Name, limit)
			continue
		}
		add(created, list, c.Name, map[string]any{".": map[string]any{}})
		if of[w.manager] == nil {
			of[w.manager] = map[string]any{}
		}
		add(of[w.manager], list, c.Name, limit)
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
	for _, c := range containers(next) {
		if m, ok := limits[c.Name]; ok {
			c.Resources.Limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(m, resource.DecimalSI)
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
