package constraints

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// FactorSource is an object that bounds limits by multiples of the declared ones.
type FactorSource struct {
	By string // as Kind/name
	kube.Factors
}

// InstallationSource is the name of the installation as a source of constraints.
const InstallationSource = "Installation/mbcas"

// FactorsFor are the sources of the factors of a namespace's pods: the installation and the namespace. A value that
// cannot be read counts as the strictest.
func FactorsFor(installation kube.Factors, namespace metav1.Object) []FactorSource {
	own, _ := kube.FactorsOf(namespace)
	return []FactorSource{{InstallationSource, installation}, {"Namespace/" + namespace.GetName(), own}}
}

// addFactors adds the strictest of the factors of the installation, the namespace and the pod.
func (b *builder) addFactors(sources []FactorSource, pod *corev1.Pod, declared []v1alpha1.ContainerLimit) {
	own, _ := kube.FactorsOf(pod) // what cannot be read counts as 1
	var highest, lowest FactorSource
	for _, s := range append(sources[:len(sources):len(sources)], FactorSource{"Pod/" + pod.Name, own}) {
		if s.Max > 0 && (highest.Max == 0 || s.Max < highest.Max) {
			highest = s
		}
		if s.Min > lowest.Min {
			lowest = s
		}
	}
	times := func(limit cpu.Milli, f float64, round func(cpu.Milli, cpu.Milli) cpu.Milli) cpu.Milli {
		if f == 1 {
			return limit // the declared limit itself, whatever quanta it has
		}
		return round(cpu.FromCores(limit.Cores()*f), cpu.Quantum)
	}
	if highest.Max > 0 {
		for _, d := range declared {
			b.ceilings[d.Name] = lowerCeiling(b.ceilings[d.Name], max(times(d.CPULimit, highest.Max, cpu.Milli.RoundDown), cpu.Quantum))
		}
		b.ceilingBy = append(b.ceilingBy, highest.By)
	}
	if lowest.Min > 0 {
		floors := map[string]cpu.Milli{}
		for _, d := range declared {
			floors[d.Name] = times(d.CPULimit, lowest.Min, cpu.Milli.RoundUp)
		}
		b.addFloors(floors, lowest.By)
	}
}
