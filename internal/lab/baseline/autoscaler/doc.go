// Package autoscaler models Kubernetes' autoscalers: the VerticalPodAutoscaler with in-place
// updates, and the HorizontalPodAutoscaler, both on what metrics-server reports.
package autoscaler
