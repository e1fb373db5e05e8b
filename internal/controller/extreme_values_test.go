package controller

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// vast is the largest amount of 64 bits. The API server takes larger ones, too.
const vast = "9223372036854775807"

// The values that are tried of each type.
var (
	extremeAmounts = []string{"0", "1n", "9m", "10m", "99999.999", "100k", "1M", "500Mi", vast, "1e300"}
	extremeInts    = []int64{math.MinInt64, math.MinInt32, -1, 0, 1, math.MaxInt32, math.MaxInt64}
	extremePorts   = []intstr.IntOrString{
		intstr.FromInt32(math.MinInt32), intstr.FromInt32(0), intstr.FromInt32(math.MaxInt32), intstr.FromString("0%"),
		intstr.FromString("100%"), intstr.FromString("2147483647%"), intstr.FromString("x"),
	}
	extremeLengths = []int{0, 1, 64, 65, 1000}
	extremeTexts   = append([]string{"", "-1", "NaN", "1e300", strings.Repeat("9", 30_000)}, extremeAmounts...)
)

// extreme is an object with one extreme value.
type extreme struct {
	what   string
	object client.Object
}

// extremes collects objects like base, each with an extreme value at one place that the type of base has.
type extremes struct {
	base client.Object
	all  []extreme
}

// extremesOf are all of them that differ in what the controller's caches keep.
func extremesOf(base client.Object, keys ...string) []extreme {
	x := &extremes{base: base}
	for _, key := range keys {
		annotations, labels := base.GetAnnotations(), base.GetLabels()
		for _, text := range extremeTexts {
			base.SetAnnotations(map[string]string{key: text})
			x.note("annotation "+key, text)
			base.SetAnnotations(annotations)
			with := map[string]string{key: text}
			maps.Copy(with, labels)
			base.SetLabels(with)
			x.note("label "+key, text)
			base.SetLabels(labels)
		}
	}
	if u, ok := base.(*unstructured.Unstructured); ok {
		x.walkJSON(u.Object["spec"], "spec", func(v any) { u.Object["spec"] = v })
	} else {
		x.walk(reflect.ValueOf(base).Elem(), "", 0)
	}
	return x.all
}

// note adds the object as it is now, if it differs from base for the controller.
func (x *extremes) note(path string, value any) {
	if q, ok := value.(resource.Quantity); ok {
		value = q.String()
	}
	x.all = append(x.all, extreme{fmt.Sprintf("%s = %.40v", path, value), x.base.DeepCopyObject().(client.Object)})
}

// differs says whether the controller's caches keep the difference.
func (e extreme) differs(from client.Object) bool {
	with, without := e.object.DeepCopyObject(), from.DeepCopyObject()
	_, _ = kube.Trim(with)
	_, _ = kube.Trim(without)
	return !equality.Semantic.DeepEqual(with, without)
}

// walk sets each value that can be reached from v to its extremes, one after the other. It leaves v as it was.
func (x *extremes) walk(v reflect.Value, path string, depth int) {
	before := reflect.New(v.Type()).Elem()
	before.Set(v)
	defer v.Set(before)
	try := func(value any) {
		v.Set(reflect.ValueOf(value).Convert(v.Type()))
		x.note(path, value)
	}
	switch value := v.Interface().(type) {
	case resource.Quantity:
		for _, text := range extremeAmounts {
			try(resource.MustParse(text))
		}
		return
	case intstr.IntOrString:
		for _, p := range extremePorts {
			try(p)
		}
		return
	case corev1.ResourceList:
		names := slices.AppendSeq([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceEphemeralStorage}, maps.Keys(value))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			amounts := extremeAmounts
			if _, there := value[name]; !there && name != corev1.ResourceCPU {
				amounts = extremeAmounts[len(extremeAmounts)-1:]
			}
			for _, text := range amounts {
				with := maps.Clone(value)
				if with == nil {
					with = corev1.ResourceList{}
				}
				with[name] = resource.MustParse(text)
				v.Set(reflect.ValueOf(with))
				x.note(path+"."+string(name), text)
			}
		}
		return
	case metav1.Time, metav1.MicroTime, metav1.ObjectMeta:
		return
	}
	switch v.Kind() {
	case reflect.Int32, reflect.Int64:
		for _, n := range extremeInts {
			if !v.OverflowInt(n) {
				try(n)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Status" { // which no tenant writes
				x.walk(v.Field(i), path+"."+f.Name, depth+1)
			}
		}
	case reflect.Pointer:
		if depth < 8 { // some types hold themselves
			other := reflect.New(v.Type().Elem())
			if !v.IsNil() {
				other.Elem().Set(v.Elem())
			}
			v.Set(other)
			x.walk(other.Elem(), path, depth+1)
		}
	case reflect.Slice:
		x.walkList(v, path, depth)
	}
}

// walkList tries lengths of a list that is not empty, and the values of each element.
func (x *extremes) walkList(v reflect.Value, path string, depth int) {
	before := v.Slice(0, v.Len())
	if before.Len() == 0 {
		return
	}
	for _, n := range extremeLengths {
		list := reflect.MakeSlice(v.Type(), 0, n)
		for i := range n {
			e := reflect.New(v.Type().Elem()).Elem()
			e.Set(before.Index(min(i, before.Len()-1)))
			if i >= before.Len() && e.Kind() == reflect.Struct {
				if name := e.FieldByName("Name"); name.IsValid() && name.Kind() == reflect.String {
					name.SetString(fmt.Sprint(name.String(), "-", i))
				}
			}
			list = reflect.Append(list, e)
		}
		v.Set(list)
		x.note("length of "+path, n)
	}
	list := reflect.MakeSlice(v.Type(), before.Len(), before.Len())
	reflect.Copy(list, before)
	v.Set(list)
	for i := range list.Len() {
		x.walk(list.Index(i), fmt.Sprintf("%s[%d]", path, i), depth+1)
	}
}

// walkJSON is walk for an object without a type of Go: set replaces the value.
func (x *extremes) walkJSON(v any, path string, set func(any)) {
	defer set(v)
	switch v := v.(type) {
	case int64:
		for _, n := range extremeInts {
			set(n)
			x.note(path, n)
		}
	case string:
		if _, err := resource.ParseQuantity(v); err != nil {
			return
		}
		for _, text := range extremeTexts {
			set(text)
			x.note(path, text)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			x.walkJSON(v[key], path+"."+key, func(other any) { v[key] = other })
		}
	case []any:
		for _, n := range extremeLengths {
			set(slices.Repeat(v[:1], n))
			x.note("length of "+path, n)
		}
		set(v)
		x.walkJSON(v[0], path+"[0]", func(other any) { v[0] = other })
	}
}
