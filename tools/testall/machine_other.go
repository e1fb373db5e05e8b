//go:build !linux

package main

import "context"

// adoptOrphans does nothing: only Linux can do it.
func adoptOrphans() error { return nil }

// orphans finds none.
func orphans() ([]string, error) { return nil, nil }

// busiest says nothing.
func busiest(context.Context) string { return "" }

// loadAverage is unknown.
func loadAverage() float64 { return 0 }

// cpuTime is unknown.
func cpuTime() (total, stolen float64) { return 0, 0 }
