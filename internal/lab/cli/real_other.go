//go:build !linux

package cli

import "github.com/spf13/cobra"

// realCommands are for Linux: there are no cgroups elsewhere.
func realCommands(Streams) []*cobra.Command { return nil }
