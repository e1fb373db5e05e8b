package past

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/whatif"
)

// ChangePods reads the flags of what-if about pods.
func ChangePods(change *whatif.Change, priorities, requests, most, optOut []string) error {
	for _, text := range priorities {
		pods, value, err := pattern("priority", text)
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return fmt.Errorf("--priority %s: want a whole number after the =", text)
		}
		v := int32(n)
		change.Pods = append(change.Pods, whatif.PodChange{Pattern: pods, Priority: &v})
	}
	for _, text := range requests {
		pods, amount, err := patternCPU("request", text)
		if err != nil {
			return err
		}
		change.Pods = append(change.Pods, whatif.PodChange{Pattern: pods, Request: amount})
	}
	for _, text := range most {
		pods, amount, err := patternCPU("max-cpu", text)
		if err != nil {
			return err
		}
		change.Pods = append(change.Pods, whatif.PodChange{Pattern: pods, MaxCPU: amount})
	}
	for _, pods := range optOut {
		change.Pods = append(change.Pods, whatif.PodChange{Pattern: pods, OptOut: true})
	}
	return nil
}

func pattern(flag, text string) (pods, value string, err error) {
	pods, value, ok := strings.Cut(text, "=")
	if !ok || !strings.Contains(pods, "/") {
		return "", "", fmt.Errorf("--%s %s: want NAMESPACE/NAME=VALUE, such as 'shop/cart-*=500'", flag, text)
	}
	return pods, value, nil
}

func patternCPU(flag, text string) (pods string, amount cpu.Milli, err error) {
	pods, value, err := pattern(flag, text)
	if err != nil {
		return "", 0, err
	}
	q, err := resource.ParseQuantity(value)
	if err != nil || q.MilliValue() <= 0 {
		return "", 0, fmt.Errorf("--%s %s: want an amount of CPU after the =, such as 500m or 2", flag, text)
	}
	return pods, cpu.Milli(q.MilliValue()), nil
}
