package podresize_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
)

// server stands in for a client.Client in this example. The fake client of controller-runtime does
// not implement pods/resize.
type server struct{ client.SubResourceClient }

func (s server) SubResource(string) client.SubResourceClient { return s }

func (server) Patch(_ context.Context, pod client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	body, err := patch.Data(pod)
	if err != nil {
		return err
	}
	fmt.Printf("PATCH pods/%s/resize %s\n", pod.GetName(), body)
	*pod.(*corev1.Pod) = *web("1500m")
	return nil
}

func web(limit string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "4f2e", ResourceVersion: "7"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name:      "app",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)}},
		}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
}

func ExampleClient_Apply() {
	resizer := podresize.New(server{}, "my-controller") // give it your client.Client
	move := actuator.Move{UID: "4f2e", Changes: []actuator.Change{{Container: "app", From: 500, To: 1500}}}

	switch result := resizer.Apply(context.Background(), web("500m"), move); result.Outcome {
	case podresize.Accepted, podresize.NoChange:
		fmt.Println("stored; wait until podresize.Check reports Done")
	case podresize.Conflict, podresize.Unknown:
		fmt.Println("read the pod and decide again")
	default:
		fmt.Println("back off:", result.Outcome, result.Message)
	}
	// Output:
	// PATCH pods/web/resize {"metadata":{"resourceVersion":"7","uid":"4f2e"},"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"1500m"}}}]}}
	// stored; wait until podresize.Check reports Done
}
