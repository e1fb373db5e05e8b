package config_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// Users, as the documentation calls them.
const (
	agent1             = "agent of node-1"
	agent2             = "agent of node-2"
	longAgent          = "agent of a node with a long name"
	unboundAgent       = "agent's token that names no node"
	elevatedAgent      = "agent of node-1 with cluster-admin"
	controller         = "controller"
	elevatedController = "controller with cluster-admin"
	kubelet            = "kubelet of node-1"
	editor             = "tenant with the role edit"
	admin              = "tenant with the role admin"
	owner              = "tenant with every right in its namespace"
	namesake           = "account mbcas-controller of a tenant's namespace"
	pluginUser         = "user of the plugin"
	masters            = "member of system:masters"
	collector          = "garbage collector"
)

// longNode is a name to which no prefix can be added: longer than 241 characters.
var longNode = strings.Repeat("rack-1.", 35) + "a"

var (
	agentAccount      = client.ObjectKey{Namespace: system, Name: "mbcas-agent"}
	controllerAccount = client.ObjectKey{Namespace: system, Name: "mbcas-controller"}
)

// addUsers gives each user the credentials that it would have.
func (e *environment) addUsers(t *testing.T) {
	t.Helper()
	e.users[masters] = e.Client
	e.addTenants(t)
	e.users[kubelet] = e.As(t, "system:node:node-1", "system:nodes")
	e.users[pluginUser] = e.As(t, "plugin-user")
	e.bind(t, "", "ClusterRole/mbcas-plugin", user("plugin-user"))
	e.bind(t, system, "Role/mbcas-plugin", user("plugin-user"))
	e.bind(t, "shop", "ClusterRole/mbcas-plugin-resize", user("plugin-user"))
	// The garbage collector of a cluster whose controllers have accounts of their own.
	gc := client.ObjectKey{Namespace: "kube-system", Name: "generic-garbage-collector"}
	e.users[collector] = e.As(t, "system:serviceaccount:"+gc.Namespace+":"+gc.Name)
	e.bind(t, "", "ClusterRole/system:controller:"+gc.Name, serviceAccount(gc))

	// The kubelet itself asks for the token of the agent on its node, as kubelets do, once the API server's
	// authorizer has seen the pod.
	e.program(t, "agent-1", "node-1", agentAccount)
	apiserver.Eventually(t, "the kubelet gets a token for the agent on its node", func() (bool, any) {
		token, err := apiserver.Token(t.Context(), e.users[kubelet], agentAccount, e.pods[system+"/agent-1"])
		e.users[agent1] = e.Bearer(t, token)
		return err == nil, err
	})
	e.program(t, "agent-2", "node-2", agentAccount)
	e.users[agent2] = e.withToken(t, agentAccount, "agent-2")
	e.program(t, "agent-long", longNode, agentAccount)
	e.users[longAgent] = e.withToken(t, agentAccount, "agent-long")
	e.users[unboundAgent] = e.withToken(t, agentAccount, "")
	e.program(t, "controller", "node-2", controllerAccount)
	e.users[controller] = e.withToken(t, controllerAccount, "controller")
	e.users[elevatedAgent], e.users[elevatedController] = e.users[agent1], e.users[controller]
}

// program makes a pod of MBCAS, with the volume for its token that ServiceAccount admission would give it.
func (e *environment) program(t *testing.T, name, node string, account client.ObjectKey) {
	t.Helper()
	p := apiserver.Pod(account.Namespace, name, apiserver.Container("main", "20m", ""))
	p.Spec.ServiceAccountName, p.Spec.NodeName = account.Name, node
	access := corev1.Volume{Name: "kube-api-access"}
	access.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
	}}
	p.Spec.Volumes = []corev1.Volume{access}
	e.create(t, p)
	e.pods[system+"/"+name] = p
}

// withToken is a client with a token of the account that is bound to a pod of mbcas-system, or to none.
func (e *environment) withToken(t *testing.T, account client.ObjectKey, pod string) client.Client {
	t.Helper()
	token, err := apiserver.Token(t.Context(), e.Client, account, e.pods[system+"/"+pod])
	must.Succeed(t, err)
	return e.Bearer(t, token)
}

// addTenants makes users with rights in the namespace shop.
func (e *environment) addTenants(t *testing.T) {
	t.Helper()
	for name, of := range map[string]string{editor: "edit", admin: "admin"} {
		e.users[name] = e.As(t, "tenant-"+of)
		// A controller fills the built-in roles with those that are labelled for them. None runs here, so they are
		// bound one by one.
		for _, role := range e.aggregated(t, of, map[string]bool{}) {
			e.bind(t, "shop", "ClusterRole/"+role, user("tenant-"+of))
		}
	}
	e.users[owner] = e.As(t, "tenant-owner")
	e.bind(t, "shop", "ClusterRole/cluster-admin", user("tenant-owner"))
	account := client.ObjectKey{Namespace: "shop", Name: "mbcas-controller"}
	e.create(t, &corev1.ServiceAccount{ObjectMeta: meta(account)})
	e.bind(t, "shop", "ClusterRole/cluster-admin", serviceAccount(account))
	e.users[namesake] = e.withToken(t, account, "")
}

// aggregated are the roles that make up a built-in one.
func (e *environment) aggregated(t *testing.T, role string, seen map[string]bool) []string {
	t.Helper()
	if seen[role] {
		return nil
	}
	seen[role] = true
	r := &rbacv1.ClusterRole{}
	must.Succeed(t, e.Client.Get(t.Context(), client.ObjectKey{Name: role}, r))
	if r.AggregationRule == nil {
		return []string{role}
	}
	var names []string
	for _, selector := range r.AggregationRule.ClusterRoleSelectors {
		var list rbacv1.ClusterRoleList
		matching := client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(selector.MatchLabels)}
		must.Succeed(t, e.Client.List(t.Context(), &list, matching))
		for _, part := range list.Items {
			names = append(names, e.aggregated(t, part.Name, seen)...)
		}
	}
	return names
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}
}

func serviceAccount(key client.ObjectKey) rbacv1.Subject {
	return rbacv1.Subject{Kind: "ServiceAccount", Namespace: key.Namespace, Name: key.Name}
}

// bind gives subjects a role, as Kind/name, in a namespace, or everywhere if that is empty.
func (e *environment) bind(t *testing.T, namespace, role string, subjects ...rbacv1.Subject) client.Object {
	t.Helper()
	of := split(role)
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: of.Namespace, Name: of.Name}
	made := metav1.ObjectMeta{Namespace: namespace, GenerateName: "test-"}
	var b client.Object = &rbacv1.RoleBinding{ObjectMeta: made, RoleRef: ref, Subjects: subjects}
	if namespace == "" {
		b = &rbacv1.ClusterRoleBinding{ObjectMeta: made, RoleRef: ref, Subjects: subjects}
	}
	e.create(t, b)
	return b
}

// elevate makes the accounts of MBCAS cluster-admins, as a careless administrator might, until the test ends.
func (e *environment) elevate(t *testing.T) {
	t.Helper()
	await := func(elevated bool) {
		for _, user := range []string{agent1, controller} {
			apiserver.Eventually(t, "the rights of the "+user+" have changed", func() (bool, any) {
				err := may("get", "secrets", system)(call{context.Background(), e, e.users[user]})
				return (err == nil) == elevated, err
			})
		}
	}
	b := e.bind(t, "", "ClusterRole/cluster-admin", serviceAccount(agentAccount), serviceAccount(controllerAccount))
	t.Cleanup(func() {
		must.Succeed(t, e.Client.Delete(context.Background(), b))
		await(false)
	})
	await(true)
}
