package experiment

import "github.com/mbcas/mbcas/internal/lab/scenario"

// Role is the part of a pod in a scenario.
type Role = scenario.Role

// The roles.
const (
	Service = scenario.Service
	Batch   = scenario.Batch
	Honest  = scenario.Honest
	Liar    = scenario.Liar
	Other   = scenario.Other
)
