package vm

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/nodeconfig"
	"github.com/mbcas/mbcas/test/cluster/internal/pki"
)

func TestModuleOrder(t *testing.T) {
	const dep = `kernel/virtio.ko:
kernel/ring.ko: kernel/virtio.ko
kernel/virtio_pci.ko: kernel/ring.ko kernel/virtio.ko
kernel/virtio_net.ko: kernel/failover.ko kernel/ring.ko kernel/virtio.ko
kernel/failover.ko:
kernel/other.ko:
`
	got, err := moduleOrder(dep, []string{"virtio_pci", "virtio_net"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"kernel/virtio.ko", "kernel/ring.ko", "kernel/virtio_pci.ko", "kernel/failover.ko", "kernel/virtio_net.ko"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("order of loading, each once (-want +got):\n%s", d)
	}
	if _, err := moduleOrder(dep, []string{"ring", "absent"}); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("a module that is not there: %v, want an error that names it", err)
	}
}

// entryOf is what a reader of the archive sees.
type entryOf struct {
	Name  string
	Mode  int64
	Major int64
	Data  string
}

// unpack reads the archive by the format's own description.
func unpack(t *testing.T, raw []byte) []entryOf {
	t.Helper()
	var all []entryOf
	align := func(n int64) int64 { return (n + 3) &^ 3 }
	for at := int64(0); ; {
		if string(raw[at:at+6]) != "070701" {
			t.Fatalf("no header at %d", at)
		}
		field := func(n int64) int64 {
			v, err := strconv.ParseInt(string(raw[at+6+8*n:at+14+8*n]), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		size, nameSize := field(6), field(11)
		data := align(at + 110 + nameSize)
		e := entryOf{Name: strings.TrimRight(string(raw[at+110:at+110+nameSize]), "\x00"), Mode: field(1), Major: field(9), Data: string(raw[data : data+size])}
		if e.Name == "TRAILER!!!" {
			return all
		}
		all = append(all, e)
		at = align(data + size)
	}
}

func TestArchive(t *testing.T) {
	got := unpack(t, archive(map[string]file{
		"/init":        {mode: modeProgram, data: []byte("odd")},
		"/dev/console": {mode: modeDevice, dev: [2]uint32{5, 1}},
		"/payload/a/b": {mode: modeFile},
	}))
	want := []entryOf{
		{Name: "dev", Mode: modeDir},
		{Name: "dev/console", Mode: modeDevice, Major: 5},
		{Name: "init", Mode: modeProgram, Data: "odd"},
		{Name: "payload", Mode: modeDir},
		{Name: "payload/a", Mode: modeDir},
		{Name: "payload/a/b", Mode: modeFile},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("entries, folders before what is in them (-want +got):\n%s", d)
	}
}

func TestPayload(t *testing.T) {
	c := config.Default(t.TempDir(), true)
	if err := pki.Issue(c.PKI(""), pki.Leaves(c.NodeName, c.ServiceIP(), c.NodeIP())); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Path("pause.tar"), []byte("image"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := Node{Name: "mbcas-vm-1", Index: 1}
	files, err := m.payload(c)
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range files {
		if !strings.HasPrefix(path, nodeconfig.State+"/") {
			t.Errorf("%s is outside the node's state folder", path)
		}
		if strings.Contains(string(data), c.State) {
			t.Errorf("%s names the host's state folder, which the node does not have", path)
		}
		authority, err := os.ReadFile(c.PKI("ca.key"))
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(path) == "ca.key" || string(data) == string(authority) {
			t.Errorf("%s is the key of the cluster's authority", path)
		}
	}
	settings := m.settings(c, time.Now())
	for _, needed := range append([]string{settings.ImageServer.Certificate, settings.ImageServer.Key, settings.ImageServer.Authority}, settings.Images...) {
		if _, ok := files[needed]; !ok {
			t.Errorf("the configuration names %s, which the node does not get", needed)
		}
	}
	var k struct {
		Address            string
		RegisterWithTaints []struct{ Key, Effect string }
	}
	i := slices.IndexFunc(settings.Kubelet.Args, func(a string) bool { return strings.HasPrefix(a, "--config=") })
	if err := json.Unmarshal(files[strings.TrimPrefix(settings.Kubelet.Args[i], "--config=")], &k); err != nil {
		t.Fatal(err)
	}
	if k.Address != "10.244.0.128" || len(k.RegisterWithTaints) != 1 || k.RegisterWithTaints[0].Effect != "NoSchedule" {
		t.Errorf("kubelet configuration: %+v", k)
	}
	if want := netip.MustParsePrefix("10.244.0.128/24"); settings.Address != want {
		t.Errorf("address %v, want %v: in the network of this machine's pods", settings.Address, want)
	}
}
