package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
)

// preview asks the API server what applying would change, says it, and writes nothing. Where the API server refuses an
// object, nothing is to be written: a part of an upgrade may not fit the rest. An object that is not there is not asked
// about, as its namespace may not be there either.
func (r *run) preview(ctx context.Context, now *installation, objects []*unstructured.Unstructured) error {
	created, changed := 0, 0
	var refused []error
	for _, o := range objects {
		before := now.live[nameOf(o)]
		if before == nil {
			created++
			continue
		}
		after, err := r.apply(ctx, o, client.DryRunAll)
		switch fields := differences("", relevant(before), relevant(after)); {
		case err != nil && strings.Contains(err.Error(), "does not support dry run"):
			r.say("  %s: what changes is not known: a webhook does not support dry runs", nameOf(o))
		case err != nil:
			refused = append(refused, err)
		case len(fields) > 0:
			changed++
			for _, f := range fields {
				r.say("  %s: %s", nameOf(o), f)
			}
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("nothing was written: %w", errors.Join(refused...))
	}
	r.say("%s: %d created, %d changed, %d as they were.", format.Plural(len(objects), "object"), created, changed,
		len(objects)-created-changed)
	return nil
}

// applyAll applies objects in their order.
func (r *run) applyAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	if r.o.DryRun {
		return nil
	}
	for i, o := range objects {
		if _, err := r.apply(ctx, o); err != nil {
			return err
		}
		if o.GetKind() == crdKind && objects[i+1].GetKind() != crdKind {
			if err := r.waitEstablished(ctx, objects[:i+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply applies one object, and returns what the API server has then, or would have.
func (r *run) apply(
	ctx context.Context, o *unstructured.Unstructured, options ...client.ApplyOption,
) (*unstructured.Unstructured, error) {
	options = append(options, client.FieldOwner(kube.PluginFieldManager))
	if r.o.Force {
		options = append(options, client.ForceOwnership)
	}
	after := o.DeepCopy()
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(after), options...); err != nil {
		return after, explained("apply", o, err)
	}
	return after, nil
}

// waitEstablished waits until the API server serves the CRDs.
func (r *run) waitEstablished(ctx context.Context, objects []*unstructured.Unstructured) error {
	return r.until(ctx, time.Minute, func(ctx context.Context) (string, error) {
		for _, o := range objects {
			if o.GetKind() != crdKind {
				continue
			}
			crd := o.DeepCopy()
			if err := r.Client.Get(ctx, client.ObjectKeyFromObject(o), crd); err != nil {
				return "", explained("read", o, err)
			}
			if !established(crd) {
				return nameOf(o) + " is not established", nil
			}
		}
		return "", nil
	})
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, ok := c.(map[string]any)
		return ok && m["type"] == "Established" && m["status"] == "True"
	})
}

// relevant is an object without what the API server writes.
func relevant(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	delete(o.Object, "status")
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	return o.Object
}

// differences are the fields in which two values differ, each with both.
func differences(path string, before, after any) (fields []string) {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	a, isMap := before.(map[string]any)
	b, areMaps := after.(map[string]any)
	if isMap && areMaps {
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			fields = append(fields, differences(path+"."+k, a[k], b[k])...)
		}
		return fields
	}
	x, isList := before.([]any)
	y, areLists := after.([]any)
	if isList && areLists && len(x) == len(y) {
		for i := range x {
			fields = append(fields, differences(fmt.Sprintf("%s[%d]", path, i), x[i], y[i])...)
		}
		return fields
	}
	if len(path) > 0 {
		path = path[1:]
	}
	return []string{fmt.Sprintf("%s: %s -> %s", path, shown(before), shown(after))}
}

// shown is a value on one line, cut where it is long.
func shown(v any) string {
	const most = 80
	if v == nil {
		return "none"
	}
	text := format.OneLine(fmt.Sprint(v))
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
