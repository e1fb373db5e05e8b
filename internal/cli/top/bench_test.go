package top

import (
	"fmt"
	"testing"
)

// BenchmarkNodes5000 draws a frame of 5,000 nodes.
func BenchmarkNodes5000(b *testing.B) {
	c := Cluster{At: noon}
	for i := range 5000 {
		c.Nodes = append(c.Nodes, Node{Name: fmt.Sprintf("node-%d", i*7919%5000), State: "free", Supply: 3600, Usage: 900})
	}
	m, _ := after(Model{}, Size{120, 40}, Tick(noon), ClusterRead{At: noon, Cluster: c}, Key("down"))
	for b.Loop() {
		if m.View() == "" {
			b.Fatal("no frame")
		}
	}
}

// BenchmarkPods110 draws a frame of a node with 110 pods and half an hour of rounds.
func BenchmarkPods110(b *testing.B) {
	rounds := roundsFrom(noon, 1800)
	for i := range rounds {
		for j := range 110 {
			rounds[i].Pods = append(rounds[i].Pods, Pod{Namespace: "shop", Name: fmt.Sprintf("pod-%d", j), Limit: 500, Usage: 100})
		}
	}
	m, _ := after(Model{}, Size{120, 40}, Tick(noon), ClusterRead{At: noon, Cluster: clusterAt(noon)}, Key("enter"),
		NodeRead{At: noon, Node: "gpu-1", Rounds: rounds})
	for b.Loop() {
		if m.View() == "" {
			b.Fatal("no frame")
		}
	}
}
