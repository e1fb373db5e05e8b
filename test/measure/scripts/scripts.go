// Package scripts holds the scripts that ship, as data.
package scripts

import "embed"

// Files has one NAME.yaml for each script.
//
//go:embed *.yaml
var Files embed.FS
