package config_test

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

var (
	agentAccount      = client.ObjectKey{Namespace: system, Name: "mbcas-agent"}
	controllerAccount = client.ObjectKey{Namespace: system, Name: "mbcas-controller"}
)

// employ gives everybody of the cast the credentials that they would have.
func (s *stage) employ(t *testing.T) {
	t.Helper()
	s.cast[masters] = s.Client
	s.employTenants(t)
	s.cast[kubelet] = s.As(t, "system:node:node-1", "system:nodes")
	s.cast[pluginUser] = s.As(t, "plugin-user")
	user := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "plugin-user"}}
	s.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mbcas-plugin"}, RoleRef: clusterRole("mbcas-plugin"), Subjects: user})
	s.bind(t, system, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "mbcas-plugin"}, user[0])
	s.bind(t, "shop", clusterRole("mbcas-plugin-resize"), user[0])
	// The garbage collector of a cluster whose controllers have accounts of their own.
	s.cast[collector] = s.As(t, "system:serviceaccount:kube-system:generic-garbage-collector")

	// The agent's pods. The kubelet itself asks for the token of the one on its node, as kubelets do, once the API
	// server's authorizer has seen the pod.
	agents := map[string]*corev1.Pod{}
	for name, node := range map[string]string{"agent-1": "node-1", "agent-2": "node-2", "agent-gone": "node-1"} {
		agents[name] = s.serves(t, name, node, agentAccount)
	}
	brain := s.serves(t, "controller", "node-2", controllerAccount)

	apiserver.Eventually(t, "the kubelet gets a token for the agent on its node", func() (bool, any) {
		token, err := apiserver.Token(t, s.cast[kubelet], agentAccount, agents["agent-1"])
		s.cast[agent1] = s.Bearer(t, token)
		return err == nil, err
	})
	s.cast[agent2] = s.Bearer(t, s.Token(t, agentAccount, agents["agent-2"]))
	s.cast[looseAgent] = s.Bearer(t, s.Token(t, agentAccount, nil))
	s.cast[foreignAgent] = s.Bearer(t, s.Token(t, agentAccount, agents["agent-1"], "vault"))
	s.cast[controller] = s.Bearer(t, s.Token(t, controllerAccount, brain))
	s.cast[strongAgent], s.cast[strongControl] = s.cast[agent1], s.cast[controller]
	s.orphan(t, agents["agent-gone"])
}

// serves makes a pod of ours, with the volume for its token that ServiceAccount admission would give it.
func (s *stage) serves(t *testing.T, name, node string, account client.ObjectKey) *corev1.Pod {
	t.Helper()
	p := apiserver.Pod(account.Namespace, name, apiserver.Container("main", "20m", ""))
	p.Spec.ServiceAccountName, p.Spec.NodeName = account.Name, node
	access := corev1.Volume{Name: "kube-api-access"}
	access.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
	}}
	p.Spec.Volumes = []corev1.Volume{access}
	s.create(t, p)
	s.pods[account.Namespace+"/"+name] = p
	return p
}

// orphan gets two tokens for a pod, sees that the first one works, and deletes the pod: the API server remembers for some
// seconds that a token was good, so the thief has the other.
func (s *stage) orphan(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	seen, stolen := s.Bearer(t, s.Token(t, agentAccount, pod)), s.Token(t, agentAccount, pod)
	who := &authenticationv1.SelfSubjectReview{}
	s.must(t, seen.Create(t.Context(), who))
	if node := who.Status.UserInfo.Extra["authentication.kubernetes.io/node-name"]; len(node) != 1 || node[0] != "node-1" {
		t.Fatalf("the token of a pod on node-1 says that its node is %v", node)
	}
	s.must(t, s.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	s.cast[orphanedAgent] = s.Bearer(t, stolen)
}

// employTenants makes people with rights in the namespace shop.
func (s *stage) employTenants(t *testing.T) {
	t.Helper()
	for who, of := range map[string]string{editor: "edit", admin: "admin"} {
		name := "tenant-" + of
		s.cast[who] = s.As(t, name)
		// A controller fills the built-in roles with those that are labelled for them. Here is none, so they are bound one by one.
		for _, role := range s.aggregated(t, of, map[string]bool{}) {
			s.bind(t, "shop", clusterRole(role), rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: name})
		}
	}
	s.cast[owner] = s.As(t, "tenant-owner")
	s.bind(t, "shop", clusterRole("cluster-admin"), rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "tenant-owner"})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "mbcas-controller"}}
	s.create(t, account)
	s.bind(t, "shop", clusterRole("cluster-admin"), rbacv1.Subject{Kind: "ServiceAccount", Namespace: "shop", Name: account.Name})
	s.cast[namesake] = s.Bearer(t, s.Token(t, client.ObjectKeyFromObject(account), nil))
	s.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "collector"}, RoleRef: clusterRole("system:controller:generic-garbage-collector"),
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: "generic-garbage-collector"}},
	})
}

// aggregated are the roles that make up a built-in one.
func (s *stage) aggregated(t *testing.T, role string, seen map[string]bool) []string {
	t.Helper()
	if seen[role] {
		return nil
	}
	seen[role] = true
	r := &rbacv1.ClusterRole{}
	s.must(t, s.Client.Get(t.Context(), client.ObjectKey{Name: role}, r))
	if r.AggregationRule == nil {
		return []string{role}
	}
	var names []string
	for _, selector := range r.AggregationRule.ClusterRoleSelectors {
		var list rbacv1.ClusterRoleList
		s.must(t, s.Client.List(t.Context(), &list, client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(selector.MatchLabels)}))
		for _, part := range list.Items {
			names = append(names, s.aggregated(t, part.Name, seen)...)
		}
	}
	return names
}

func clusterRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

// bind gives somebody a role in a namespace.
func (s *stage) bind(t *testing.T, namespace string, role rbacv1.RoleRef, who rbacv1.Subject) {
	t.Helper()
	b := &rbacv1.RoleBinding{RoleRef: role, Subjects: []rbacv1.Subject{who}}
	b.GenerateName, b.Namespace = "stage-", namespace
	s.create(t, b)
}

// strengthen makes our accounts cluster-admins, as a careless administrator might, until the test ends.
func (s *stage) strengthen(t *testing.T) {
	t.Helper()
	b := &rbacv1.ClusterRoleBinding{RoleRef: clusterRole("cluster-admin")}
	b.Name = "careless"
	for _, account := range []client.ObjectKey{agentAccount, controllerAccount} {
		b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name})
	}
	s.create(t, b)
	t.Cleanup(func() {
		s.must(t, s.Client.Delete(context.Background(), b))
		s.awaitStrength(t, false)
	})
	s.awaitStrength(t, true)
}

func (s *stage) awaitStrength(t *testing.T, strong bool) {
	t.Helper()
	for _, who := range []string{agent1, controller} {
		apiserver.Eventually(t, "the rights of the "+who+" have changed", func() (bool, any) {
			err := may("get", "secrets", "", system)(context.Background(), s, s.cast[who])
			return (err == nil) == strong, err
		})
	}
}
