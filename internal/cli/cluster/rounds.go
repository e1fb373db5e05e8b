package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
)

// AgentOn is the agent's pod on a node; nil where there is none.
func AgentOn(pods []corev1.Pod, node string) *corev1.Pod {
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == node && OfWorkload(p, AgentName) && p.DeletionTimestamp == nil {
			return p
		}
	}
	return nil
}

// Bounds on asking agents: a command never waits long for figures that it can do without.
const (
	RoundTimeout  = 3 * time.Second // for all nodes together
	MaxRoundNodes = 20              // more nodes than this are not asked
)

// ReadRounds asks the agents of the world's nodes for their last round, through the API server. Whatever
// does not answer keeps the figures of its last published decision, and a note says so.
func ReadRounds(ctx context.Context, a *Access, w *snapshot.Snapshot) {
	nodes := managedNodes(w)
	if len(nodes) == 0 || a.Round == nil {
		return
	}
	if len(nodes) > MaxRoundNodes {
		w.Note("Figures are those of the last decisions: %d nodes are too many to ask each agent. Name one with --node.", len(nodes))
		return
	}
	var agents corev1.PodList
	if err := a.Client.List(ctx, &agents, client.InNamespace(a.System)); err != nil {
		w.Note("Figures are those of the last decisions: the agents cannot be found: %s.", format.OneLine(err.Error()))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, RoundTimeout)
	defer cancel()
	w.Live = map[types.UID]*snapshot.Figures{}
	for _, node := range nodes {
		if err := readNode(ctx, a, w, AgentOn(agents.Items, node), node); err != nil {
			w.Note("Figures of node %s are those of the last decisions: %s.", node, format.OneLine(err.Error()))
			if apierrors.IsForbidden(err) {
				return // the other nodes would answer the same
			}
		}
	}
}

func readNode(ctx context.Context, a *Access, w *snapshot.Snapshot, agent *corev1.Pod, node string) error {
	market, figures, err := ReadRound(ctx, a, agent, node)
	if err != nil {
		return err
	}
	w.Markets = append(w.Markets, market)
	for uid, f := range figures {
		w.Live[uid] = f
	}
	return nil
}

// ReadRound reads the last round of a node from its agent.
func ReadRound(ctx context.Context, a *Access, agent *corev1.Pod, node string) (snapshot.Market, map[types.UID]*snapshot.Figures, error) {
	if agent == nil {
		return snapshot.Market{}, nil, fmt.Errorf("it has no agent")
	}
	data, err := a.Round(ctx, agent)
	if err != nil {
		return snapshot.Market{}, nil, fmt.Errorf("its agent cannot be asked: %w", err)
	}
	return snapshot.ParseRound(node, data)
}

// managedNodes are the nodes of pods that have an allocation, in order.
func managedNodes(w *snapshot.Snapshot) []string {
	var nodes []string
	for i := range w.Pods {
		p := &w.Pods[i]
		if w.Allocations[p.UID] != nil && p.Spec.NodeName != "" {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
