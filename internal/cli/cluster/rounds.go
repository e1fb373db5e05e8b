package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
)

// Bounds on reading rounds, so that a command does not wait long for figures that it can do
// without.
const (
	RoundTimeout  = 3 * time.Second // for all nodes together
	MaxRoundNodes = 20              // no agent is read if there are more nodes
)

// ReadRounds reads the last round of each node with managed pods from its agent, through the API
// server. Pods of the other nodes keep the figures of their last published decision, and a note
// says so.
func ReadRounds(ctx context.Context, a *Access, s *snapshot.Snapshot) {
	nodes := managedNodes(s)
	if len(nodes) == 0 || a.Round == nil || s.Removed {
		return
	}
	if len(nodes) > MaxRoundNodes {
		s.Note("Figures are those of the last decisions: %d nodes are too many to read each agent. Name one with "+
			"--node.", len(nodes))
		return
	}
	var agents corev1.PodList
	if err := a.Client.List(ctx, &agents, client.InNamespace(a.System)); err != nil {
		s.Note("Figures are those of the last decisions: list the agents: %s.", format.OneLine(err.Error()))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, RoundTimeout)
	defer cancel()
	s.Live = map[types.UID]*snapshot.Figures{}
	for _, node := range nodes {
		market, figures, err := ReadRound(ctx, a, AgentOn(agents.Items, node), node)
		if err != nil {
			s.Note("Figures of node %s are those of the last decisions: %s.", node, format.OneLine(err.Error()))
			if apierrors.IsForbidden(err) {
				return // it is forbidden for the other nodes too
			}
			continue
		}
		s.Markets = append(s.Markets, market)
		maps.Copy(s.Live, figures)
	}
}

// ReadRound reads the last round of a node from its agent.
func ReadRound(
	ctx context.Context, a *Access, agent *corev1.Pod, node string,
) (snapshot.Market, map[types.UID]*snapshot.Figures, error) {
	if agent == nil {
		return snapshot.Market{}, nil, errors.New("it has no agent")
	}
	data, err := a.Round(ctx, agent)
	if err != nil {
		return snapshot.Market{}, nil, fmt.Errorf("read its agent's last round: %w", err)
	}
	return snapshot.ParseRound(node, data)
}

// managedNodes are the nodes of pods that have an allocation, sorted.
func managedNodes(s *snapshot.Snapshot) []string {
	var nodes []string
	for i := range s.Pods {
		p := &s.Pods[i]
		if s.Allocations[p.UID] != nil && p.Spec.NodeName != "" {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
