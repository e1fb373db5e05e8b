//go:build !linux

package main

import "context"

// adoptOrphans does nothing: only Linux can do it.
func adoptOrphans() error { return nil }

// orphans finds none.
func orphans() ([]string, error) { return nil, nil }

// busiest says nothing.
func busiest(context.Context) string { return "" }
