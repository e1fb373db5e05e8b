package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/whatif"
)

func whatIfCommand(s Streams, f *flags) *cobra.Command {
	var from source
	var o output
	var reserve, credits float64
	var off bool
	var priorities, requests, most, optOut []string
	cmd := &cobra.Command{
		Use:   "what-if FILE|POD",
		Short: "Decide on a recording with other settings, and compare the limits",
		Long: "Run the rounds of a recording with another reserve, other priorities or requests, or without MBCAS, and compare the limits\n" +
			"that the market would have decided. The counters stay as recorded: what the pods would have done with other limits is\n" +
			"not played. PODS is NAMESPACE/NAME, with * for any characters.",
		Example: "  kubectl mbcas what-if --node node-1 --reserve 0.05\n" +
			"  kubectl mbcas what-if node-1-20261121T120000" + extension + " --priority 'shop/cart-*=100000' --max-cpu 'batch/*=1'\n" +
			"  kubectl mbcas what-if cart-7d9f -n shop --off",
		Args: from.args, ValidArgsFunction: f.completePods,
		RunE: func(cmd *cobra.Command, _ []string) error {
			change := whatif.Change{Off: off}
			if cmd.Flags().Changed("reserve") {
				change.Reserve = &reserve
			}
			if cmd.Flags().Changed("credits") {
				change.Credits = &credits
			}
			if err := changePods(&change, priorities, requests, most, optOut); err != nil {
				return UsageError{Err: err}
			}
			if err := change.Validate(); err != nil {
				return UsageError{Err: err}
			}
			rec, err := from.read(cmd.Context(), f, s)
			if err != nil {
				return err
			}
			c, err := whatif.Decide(rec, change)
			if err != nil {
				return err
			}
			if len(change.Pods) > 0 && c.Matched == 0 {
				return fmt.Errorf("no managed pod of the recording is one of those named: check the patterns; they are NAMESPACE/NAME")
			}
			return o.write(s.Out, c, c.Text)
		},
	}
	from.bind(cmd)
	cmd.Flags().Float64Var(&reserve, "reserve", 0, "share of the node's allocatable CPU that is not sold, 0 to below 1")
	cmd.Flags().Float64Var(&credits, "credits", 0, "highest factor on the budget of a pod that used less than its share before, 1 to 10")
	cmd.Flags().BoolVar(&off, "off", false, "MBCAS is off: every pod has its declared limits")
	cmd.Flags().StringArrayVar(&priorities, "priority", nil, "`PODS=VALUE`: these pods have a PriorityClass of that value")
	cmd.Flags().StringArrayVar(&requests, "request", nil, "`PODS=CPU`: these pods request that")
	cmd.Flags().StringArrayVar(&most, "max-cpu", nil, "`PODS=CPU`: these pods get no higher limit")
	cmd.Flags().StringArrayVar(&optOut, "opt-out", nil, "`PODS` that MBCAS does not manage")
	outputFlag(cmd, &o, asJSON, asYAML)
	return cmd
}

// changePods reads the flags about pods.
func changePods(change *whatif.Change, priorities, requests, most, optOut []string) error {
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
