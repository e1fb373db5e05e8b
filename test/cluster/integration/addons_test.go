package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// scaled wants more than its limit, so it uses twice its request whatever the
// machine: an HPA with half of it as its target sets more replicas than it may.
const scaled = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: scaled}
spec:
  selector: {matchLabels: {app: scaled}}
  template:
    metadata: {labels: {app: scaled}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: scaled
        image: mbcas.io/inside:dev
        imagePullPolicy: Never
        args: [burn]
        resources: {requests: {cpu: 50m}, limits: {cpu: 100m}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: scaled}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: scaled}
  maxReplicas: 3
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
`

// fitted requests less than the lowest recommendation of a VPA, so that the updater
// acts on the first recommendation that it sees. One is changed in place, the other
// is evicted and passes the webhook.
const fitted = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: fitted
        image: mbcas.io/inside:dev
        imagePullPolicy: Never
        args: [burn]
        resources: {requests: {cpu: 10m}, limits: {cpu: 100m}}
---
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata: {name: %[1]s}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}
  updatePolicy: {updateMode: %[2]s, minReplicas: 1}
  resourcePolicy: {containerPolicies: [{containerName: "*", controlledResources: [cpu], maxAllowed: {cpu: 200m}}]}
`

// The real HPA and the real VPA act on pods, come back after a crash, and go.
func TestAddons(t *testing.T) {
	needNode(t)
	u := newUser(t)
	before := observeHost(t)
	u.run("up", "--require-node", "--hpa-sync=2s")
	u.loadInside()

	u.run("addon", "up", "metrics-server", "--interval=10s")
	u.apply(scaled)
	if out, err := u.kubectl("", "top", "nodes"); err != nil || !strings.Contains(out, "mbcas-node-1") {
		t.Errorf("kubectl top nodes: %v\n%s", err, out)
	}
	u.untilField("3", "deployment", "scaled", "{.spec.replicas}")

	u.run("addon", "up", "vpa", "--interval=5s")
	if out, err := u.try("addon", "up", "vpa", "--interval=6s"); err == nil || !strings.Contains(out, "addon down vpa") {
		t.Errorf("another interval for a running add-on: %v\n%s", err, out)
	}
	u.apply(fmt.Sprintf(fitted, "resized", "InPlaceOrRecreate"))
	u.apply(fmt.Sprintf(fitted, "evicted", "Recreate"))
	for app, reason := range map[string]string{"resized": "InPlaceResizedByVPA", "evicted": "EvictedByVPA"} {
		u.untilEvent(app, reason)
		u.untilMore(app, "10m")
	}

	u.crash()
	if out, err := u.try("status"); err == nil || !strings.Contains(out, "vpa-updater") {
		t.Errorf("status after a crash: %v, want a failure that names what is down\n%s", err, out)
	}
	u.run("up")
	out := u.run("status")
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

func (u user) apply(manifest string) {
	u.t.Helper()
	if out, err := u.kubectl(manifest, "apply", "--filename=-"); err != nil {
		u.t.Fatalf("apply: %v\n%s", err, out)
	}
}

func (u user) untilField(want, kind, name, path string) {
	u.t.Helper()
	u.until(fmt.Sprintf("%s %s has %s %s", kind, name, path, want), func() error {
		out, err := u.kubectl("", "get", kind, name, "--output=jsonpath="+path)
		if err == nil && out != want {
			err = fmt.Errorf("%q", out)
		}
		return err
	})
}

// untilMore waits until the app's running pod has another CPU request than the
// declared one, by the word of its node.
func (u user) untilMore(app, declared string) {
	u.t.Helper()
	u.until("the pod of "+app+" has a request of the VPA's", func() error {
		out, err := u.kubectl("", "get", "pods", "--selector=app="+app, "--field-selector=status.phase=Running",
			"--output=jsonpath={.items[*].status.containerStatuses[0].resources.requests.cpu}")
		if err == nil && (out == "" || out == declared) {
			err = fmt.Errorf("request %q; %s", out, u.why(app))
		}
		return err
	})
}

// why is what the VPA of the app says.
func (u user) why(app string) string {
	out, _ := u.kubectl("", "get", "vpa", app, "--output=jsonpath={.status}")
	return out
}

// untilEvent waits until an event with the reason is about a pod of the app.
func (u user) untilEvent(app, reason string) {
	u.t.Helper()
	u.until(app+" has an event "+reason, func() error {
		out, err := u.kubectl("", "get", "events", "--field-selector=reason="+reason+",involvedObject.kind=Pod",
			"--output=jsonpath={.items[*].involvedObject.name}")
		if err == nil && !strings.Contains(out, app+"-") {
			err = fmt.Errorf("about %q; %s", out, u.why(app))
		}
		return err
	})
}

// checkNothingNamed fails if the cluster has an object of the add-on's kinds with a name
// like that.
func (u user) checkNothingNamed(part string) {
	u.t.Helper()
	out, err := u.kubectl("", "get", "--output=json", "--all-namespaces",
		"crds,mutatingwebhookconfigurations,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,leases,services,endpointslices,apiservices")
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
