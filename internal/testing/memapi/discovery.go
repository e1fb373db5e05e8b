package memapi

import (
	"encoding/json"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// discovery answers what a server serves: its version, and the resources of a group's version. ok
// is false for anything else.
func (s *Server) discovery(q *http.Request) (r *http.Response, ok bool) {
	if q.Method == http.MethodPost && strings.HasSuffix(q.URL.Path, "/selfsubjectaccessreviews") {
		review := authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
		review.Kind, review.APIVersion = "SelfSubjectAccessReview", "authorization.k8s.io/v1"
		return answerJSON(q, review), true
	}
	if q.Method != http.MethodGet {
		return nil, false
	}
	path := strings.Trim(q.URL.Path, "/")
	if path == "version" {
		return answerJSON(q, version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3"}), true
	}
	groupVersion, group := strings.CutPrefix(path, "apis/")
	if !group {
		groupVersion = strings.TrimPrefix(path, "api/")
	}
	list := metav1.APIResourceList{GroupVersion: groupVersion}
	list.Kind, list.APIVersion = "APIResourceList", "v1"
	for _, k := range kinds {
		if k.GroupVersion().String() != groupVersion {
			continue
		}
		names := []string{k.Resource, k.Resource + "/status"}
		if k.Resource == "pods" {
			names = append(names, "pods/resize")
		}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: name, Kind: k.Kind, Namespaced: k.Namespaced, Verbs: metav1.Verbs{"get", "list", "watch", "patch"},
			})
		}
	}
	switch {
	case len(list.APIResources) > 0:
	case group && strings.Count(groupVersion, "/") == 1:
		none := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, false)
		return answer(q, http.StatusNotFound, encodeStatus(none)), true
	default:
		return nil, false
	}
	return answerJSON(q, list), true
}

func answerJSON(q *http.Request, o any) *http.Response {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and lists
	}
	return answer(q, http.StatusOK, raw)
}
