package whatif

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/mbcas/mbcas/cpu"
)

// Texts are changes of pods as flags of a command have them: PODS=VALUE, or PODS to opt out.
type Texts struct{ Priorities, Requests, MaxCPU, OptOut []string }

// AddPods adds the changes of pods.
func (c *Change) AddPods(t Texts) error {
	for _, text := range t.Priorities {
		pods, value, err := pattern(flagPriority, text)
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return fmt.Errorf("--%s %s: want a whole number after the =", flagPriority, text)
		}
		v := int32(n)
		c.Pods = append(c.Pods, PodChange{Pattern: pods, Priority: &v})
	}
	for _, text := range t.Requests {
		pods, m, err := patternCPU(flagRequest, text)
		if err != nil {
			return err
		}
		c.Pods = append(c.Pods, PodChange{Pattern: pods, Request: m})
	}
	for _, text := range t.MaxCPU {
		pods, m, err := patternCPU(flagMaxCPU, text)
		if err != nil {
			return err
		}
		c.Pods = append(c.Pods, PodChange{Pattern: pods, MaxCPU: m})
	}
	for _, pods := range t.OptOut {
		c.Pods = append(c.Pods, PodChange{Pattern: pods, OptOut: true})
	}
	return nil
}

func pattern(flag, text string) (pods, value string, err error) {
	i := strings.LastIndex(text, "=")
	if i < 0 || !strings.Contains(text[:i], "/") {
		return "", "", fmt.Errorf("--%s %s: want NAMESPACE/NAME=VALUE, such as 'shop/cart-*=500'", flag, text)
	}
	return text[:i], text[i+1:], nil
}

// mostCPU is more than any node has, in thousandths of a core.
const mostCPU = 1e9

func patternCPU(flag, text string) (pods string, m cpu.Milli, err error) {
	pods, value, err := pattern(flag, text)
	if err != nil {
		return "", 0, err
	}
	digits, milli := strings.CutSuffix(value, "m")
	v, err := strconv.ParseFloat(digits, 64)
	if !milli {
		v *= 1000
	}
	if v = math.Round(v); err != nil || !(v > 0 && v <= mostCPU) {
		return "", 0, fmt.Errorf("--%s %s: want an amount of CPU after the =, such as 500m or 2", flag, text)
	}
	return pods, cpu.Milli(v), nil
}
