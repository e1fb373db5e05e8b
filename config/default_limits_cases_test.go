package config_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// defaultLimits is the policy of the component, and its label of pods and namespaces.
const defaultLimits = "mbcas-default-limits"

// limited is the namespace whose default limit is 64 cores; the others have the labels named.
const limited = "limited"

var defaultsOf = map[string]string{
	limited: "64", "unlimited": "", "fractional": "1.5", "misspelt": "5G", "allowing": "allow",
}

// given is a new pod, and the limits that its containers have once it is created; a container without a limit is not
// among them. Default says that the policy gave one of them.
type given struct {
	name, namespace string
	pod             *corev1.Pod
	limits          map[string]string
	byDefault       bool
}

// newPods are the cases of the policy.
func newPods() []given {
	web := func(request, limit string) corev1.Container { return apiserver.Container("web", request, limit) }
	limit := map[string]string{"web": "64"}
	list := []given{
		{"a request without a limit", limited, apiserver.Pod("", "", web("100m", "")), limit, true},
		{"BestEffort", limited, apiserver.Pod("", "", web("", "")), nil, false},
		{"a request of memory alone", limited, changed(web("", ""), withMemory("1Gi", "")), nil, false},
		{"a CPU request of 0", limited, changed(web("0", ""), withMemory("1Gi", "")), nil, false},
		{"a limit of memory", limited, changed(web("100m", ""), withMemory("1Gi", "2Gi")), limit, true},
		{
			"a declared limit", limited, apiserver.Pod("", "", web("100m", "500m")),
			map[string]string{"web": "500m"}, false,
		},
		{"Guaranteed", limited, changed(web("2", "2"), withMemory("1Gi", "1Gi")), map[string]string{"web": "2"}, false},
		{"a request at the limit", limited, changed(web("64", ""), withMemory("1Gi", "1Gi")), nil, false},
		{"a request above the limit", limited, apiserver.Pod("", "", web("65", "")), nil, false},
		{"one of three containers", limited, apiserver.Pod("", "", web("100m", ""), apiserver.Container("log", "", ""),
			apiserver.Container("cache", "50m", "100m")), map[string]string{"web": "64", "cache": "100m"}, true},
		{"a namespace without the label", "unlimited", apiserver.Pod("", "", web("100m", "")), nil, false},
		{
			"a fraction of a core", "fractional", apiserver.Pod("", "", web("100m", "")),
			map[string]string{"web": "1500m"}, true,
		},
		{"a label with a unit", "misspelt", apiserver.Pod("", "", web("100m", "")), nil, false},
		{"a label with a word", "allowing", apiserver.Pod("", "", web("100m", "")), nil, false},
	}
	for _, namespace := range []string{"kube-system", "kube-node-lease", "kube-public", system} {
		list = append(list, given{namespace, namespace, apiserver.Pod("", "", web("100m", "")), nil, false})
	}
	return append(append(list, unusualPods()...), resizePolicies()...)
}

// unusualPods have more than containers with requests.
func unusualPods() []given {
	web := apiserver.Container("web", "100m", "")
	unmanaged := func(name string, change func(*corev1.Pod)) given {
		return given{name, limited, changed(web, change), nil, false}
	}
	setup := apiserver.Container("setup", "100m", "")
	repeats := func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}}
	}
	out := map[string]string{kube.ManagedKey: "false"}
	return []given{
		{"a sidecar, and an init container that ends", limited, changed(web, func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{setup, apiserver.Sidecar("proxy", "50m", "")}
		}), map[string]string{"web": "64", "proxy": "64"}, true},
		{"a sidecar alone", limited, changed(apiserver.Container("web", "", ""), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{apiserver.Sidecar("proxy", "50m", "")}
		}), map[string]string{"proxy": "64"}, true},
		{"a variable twice", limited, changed(web, repeats), map[string]string{"web": "64"}, true},
		unmanaged("opted out by label", func(p *corev1.Pod) { p.Labels = out }),
		unmanaged("opted out by annotation", func(p *corev1.Pod) { p.Annotations = out }),
		unmanaged("a mirror pod", func(p *corev1.Pod) {
			p.Spec.NodeName, p.Annotations = "node-1", map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}),
		unmanaged("pod-level resources", func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Limits: apiserver.Container("", "", "4").Resources.Limits}
		}),
		unmanaged("a runtime class", func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("machine") }),
		unmanaged("Windows", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }),
		unmanaged("a node with Windows", func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "windows"}
		}),
		{"Linux", limited, changed(web, func(p *corev1.Pod) {
			p.Spec.OS = &corev1.PodOS{Name: corev1.Linux}
			p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
		}), map[string]string{"web": "64"}, true},
	}
}

// resizePolicies are pods by what a resize of them does.
func resizePolicies() (list []given) {
	for _, c := range []struct {
		of   corev1.ResourceName
		does corev1.ResourceResizeRestartPolicy
		want map[string]string
	}{
		{corev1.ResourceCPU, corev1.RestartContainer, nil},
		{corev1.ResourceCPU, corev1.NotRequired, map[string]string{"web": "64"}},
		{corev1.ResourceMemory, corev1.RestartContainer, map[string]string{"web": "64"}},
	} {
		p := changed(apiserver.Container("web", "100m", ""), func(p *corev1.Pod) {
			policy := corev1.ContainerResizePolicy{ResourceName: c.of, RestartPolicy: c.does}
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{policy}
		})
		name := fmt.Sprintf("resizePolicy %s of %s", c.does, c.of)
		list = append(list, given{name, limited, p, c.want, c.want != nil})
	}
	return list
}

// changed is a pod of one container, changed.
func changed(c corev1.Container, change func(*corev1.Pod)) *corev1.Pod {
	p := apiserver.Pod("", "", c)
	change(p)
	return p
}

func withMemory(request, limit string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for text, list := range map[string]*corev1.ResourceList{
			request: &p.Spec.Containers[0].Resources.Requests, limit: &p.Spec.Containers[0].Resources.Limits,
		} {
			if text == "" {
				continue
			}
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[corev1.ResourceMemory] = resource.MustParse(text)
		}
	}
}
