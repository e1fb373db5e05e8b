//go:build !linux

package kernel

import (
	"context"
	"errors"
)

// Host needs Linux. Elsewhere it exists so that the programs build, and cannot be opened.
type Host struct{}

// Open always fails.
func Open(Config) (*Host, error) { return nil, errors.New("cgroups: this is not Linux") }

// Layout is zero.
func (*Host) Layout() Layout { return Layout{} }

// Read finds nothing.
func (*Host) Read([]Target) Sample { return Sample{} }

// Watch sends no hint.
func (*Host) Watch(context.Context) <-chan struct{} { return make(chan struct{}, 1) }

// Look finds nothing.
func (*Host) Look([]Target) Sample { return Sample{} }

// Find finds nothing.
func (*Host) Find([]Target) Sample { return Sample{} }

// Descriptors is 0.
func (*Host) Descriptors() int { return 0 }

// Close does nothing.
func (*Host) Close() error { return nil }
