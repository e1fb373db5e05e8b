package integration

import (
	"encoding/json"
	"strings"
	"testing"
)

// metrics-server and the VPA start, come back after a crash, and are removed. The end-to-end tests show
// that the HPA and the VPA act on pods.
func TestAddons(t *testing.T) {
	needNode(t)
	u := newUser(t)
	before := observeHost(t)
	u.run("up", "--hpa-sync=2s")

	u.run("addon", "up", "metrics-server", "--interval=10s")
	if out, err := u.kubectl("", "top", "nodes"); err != nil || !strings.Contains(out, "mbcas-node-1") {
		t.Errorf("kubectl top nodes: %v\n%s", err, out)
	}

	u.run("addon", "up", "vpa", "--interval=5s")
	out, err := u.try("addon", "up", "vpa", "--interval=6s")
	if err == nil || !strings.Contains(out, "addon down vpa") {
		t.Errorf("another interval for a running add-on: %v\n%s", err, out)
	}

	u.crash()
	if out, err := u.try("status"); err == nil || !strings.Contains(out, "vpa-updater") {
		t.Errorf("status after a crash: %v, want a failure that names what is down\n%s", err, out)
	}
	u.run("up")
	out = u.run("status")
	for _, want := range []string{"metrics-server v", "every 10s", "vpa v", "every 5s", "every 2s"} {
		if !strings.Contains(out, want) {
			t.Errorf("status does not say %q", want)
		}
	}

	if out, err := u.try("addon", "down", "metrics-server"); err == nil || !strings.Contains(out, "addon down vpa") {
		t.Errorf("down of what the VPA needs: %v\n%s", err, out)
	}
	u.run("addon", "down", "vpa")
	u.checkNothingNamed("vpa")
	u.run("status")
	u.crash() // with metrics-server up
	u.run("down")
	u.checkNothingLeft(before)
}

// checkNothingNamed fails if the cluster has an object of the add-on's kinds with a name
// like that.
func (u user) checkNothingNamed(part string) {
	u.t.Helper()
	out, err := u.kubectl("", "get", "--output=json", "--all-namespaces",
		"crds,mutatingwebhookconfigurations,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,"+
			"leases,services,endpointslices,apiservices")
	if err != nil {
		u.t.Fatalf("list what is left: %v\n%s", err, out)
	}
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		u.t.Fatal(err)
	}
	for _, o := range list.Items {
		if strings.Contains(o.Metadata.Name, part) {
			u.t.Errorf("addon down left %s %s", o.Kind, o.Metadata.Name)
		}
	}
}
