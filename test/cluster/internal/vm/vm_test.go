package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/must"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
	"github.com/mbcas/mbcas/test/cluster/internal/pki"
)

func TestPayload(t *testing.T) {
	c := config.Default(t.TempDir())
	must.Succeed(t, pki.Create(c.PKI(""), pki.Leaves(c.APIAddress())))
	must.Succeed(t, os.WriteFile(c.PauseArchive(), []byte("image"), 0o644))
	n := config.Node{Name: "mbcas-vm-1", Index: 1, VM: &config.VM{}}
	files, err := payload(c, n)
	must.Succeed(t, err)
	authority, err := os.ReadFile(c.PKI("ca.key"))
	must.Succeed(t, err)
	for path, data := range files {
		if !strings.HasPrefix(path, config.DefaultState+"/") {
			t.Errorf("%s is outside the node's state folder", path)
		}
		if strings.Contains(string(data), c.State) {
			t.Errorf("%s names the host's state folder, which the node does not have", path)
		}
		if filepath.Base(path) == "ca.key" || string(data) == string(authority) {
			t.Errorf("%s is the key of the cluster's authority", path)
		}
	}
	in := c.Inside(n)
	for _, needed := range []string{
		in.PKI("kubelet-server.crt"), in.PKI("kubelet-server.key"), in.PKI("ca.crt"), in.PauseArchive(),
	} {
		if _, ok := files[needed]; !ok {
			t.Errorf("the node does not get %s", needed)
		}
	}
	for _, arg := range append(node.KubeletArgs(in, n), node.RuntimeArgs(in)...) {
		flag, file, _ := strings.Cut(arg, "=")
		if _, ok := files[file]; !ok && (flag == "--config" || flag == "--kubeconfig") {
			t.Errorf("%s: the node does not get it", arg)
		}
	}
}
