// Package nodeconfig is the configuration of a virtual node: the host writes it,
// the node's first process reads it.
package nodeconfig

import (
	"net/netip"
	"time"
)

// Places in the node's files. The node's state folder is apart from the host's:
// the node sees nothing of the host's disk.
const (
	State    = "/var/lib/mbcas-cluster"
	Kubelet  = "/usr/bin/kubelet"
	Settings = "/node.json" // in the initial file system
	Payload  = "/payload"   // there too; copied to the root of the disk
)

// Node is what one node has to know of itself.
type Node struct {
	Name     string       `json:"name"`
	Address  netip.Prefix `json:"address"`
	Hardware string       `json:"hardware"` // address of its interface
	Gateway  netip.Addr   `json:"gateway"`  // the host, which is also the API server
	Bridge   string       `json:"bridge"`   // to make for pods
	Modules  []string     `json:"modules"`  // to load, in this order, before there is a disk

	// Clock was the host's when it wrote this: an emulated machine may start in the past.
	Clock time.Time `json:"clock"`

	// Images are archives to import before the kubelet starts.
	Images []string `json:"images"`

	Runtime     Program     `json:"runtime"`
	Kubelet     Program     `json:"kubelet"`
	ImageServer ImageServer `json:"imageServer"`
}

// Program is one that runs as long as the node does.
type Program struct {
	Path string   `json:"path"`
	Args []string `json:"args"`
}

// ImageServer accepts images from the cluster's administrator.
type ImageServer struct {
	Port        int    `json:"port"`
	Certificate string `json:"certificate"` // files
	Key         string `json:"key"`
	Authority   string `json:"authority"`
	Runtime     string `json:"runtime"` // socket of the container runtime
}

// Administrator is the only user of the image server.
const Administrator = "admin"
