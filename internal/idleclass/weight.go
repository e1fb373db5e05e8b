package idleclass

import (
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// weightedMilli is the milli-CPU whose cpu.shares the pod gets at a price: its budget, as Kubernetes does it for a
// pod without a priority, and at least what its request costs.
//
// At a price p above 1 budgets buy less than their own size, and all weights are divided by p. So where the requests
// fit the node, no pod gets less than its request: neither one whose budget is lower than that of its neighbours,
// nor one whose weight is the kubelet's, its request.
func weightedMilli(budget market.Budget, request cpu.Milli, price market.Price) cpu.Milli {
	p := float64(price)
	milli := max(float64(budget), p*float64(request)) / max(1, p)
	return cpu.Milli(milli + 0.5)
}

// ownWeight is the weight of a pod at a price.
func ownWeight(budget market.Budget, request cpu.Milli, price market.Price) uint64 {
	return WeightOf(weightedMilli(budget, request, price))
}

// smallWeight is an eighth of that, and not the least weight, which is 2 cpu.shares on cgroup v1: less than the idle
// class has. With a smaller part a quiet service that is needed waits longer where no CPU is idle; with a larger one the
// others have less beside a pod that begins to saturate (docs/weights.md).
func smallWeight(budget market.Budget, request cpu.Milli, price market.Price) uint64 {
	own := ownWeight(budget, request, price)
	return min(own, max(own/8, 2))
}

// Bounds of cpu.shares, and those of a core (pkg/kubelet/cm/helpers_linux.go in Kubernetes).
const minShares, maxShares, sharesPerCore = 2, 262144, 1024

// WeightOf is the cpu.weight that the kubelet gives a pod that requests so much: cpu.shares of 1024 for a core, from
// 2 to 262144, scaled linearly to 1 to 10000 (MilliCPUToShares and getCPUWeight in pkg/kubelet/cm of Kubernetes).
func WeightOf(milli cpu.Milli) uint64 {
	shares := min(max(uint64(max(0, milli))*sharesPerCore/1000, minShares), maxShares)
	return 1 + (shares-minShares)*9999/(maxShares-minShares)
}
