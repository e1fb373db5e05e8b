package whatif

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The names of the flags about pods. The page asks by the same names as all flags have (TestFlagNames).
const (
	flagPriority = "priority"
	flagRequest  = "request"
	flagMaxCPU   = "max-cpu"
	flagOptOut   = "opt-out"
)

// podFlags are the changes of pods.
var podFlags = []struct {
	name, usage string
	of          func(*Texts) *[]string
}{
	{flagPriority, "`PODS=VALUE`: these pods have a PriorityClass of that value", func(t *Texts) *[]string { return &t.Priorities }},
	{flagRequest, "`PODS=CPU`: these pods request that", func(t *Texts) *[]string { return &t.Requests }},
	{flagMaxCPU, "`PODS=CPU`: these pods get no higher limit", func(t *Texts) *[]string { return &t.MaxCPU }},
	{flagOptOut, "`PODS` that MBCAS does not manage", func(t *Texts) *[]string { return &t.OptOut }},
}

// Flags are those of a command that say what is otherwise.
type Flags struct {
	set     FlagSet
	reserve string
	credits float64
	off     bool
	pods    Texts
}

// FlagSet is what flags are bound to: a pflag.FlagSet.
type FlagSet interface {
	Float64Var(p *float64, name string, value float64, usage string)
	StringVar(p *string, name, value, usage string)
	BoolVar(p *bool, name string, value bool, usage string)
	StringArrayVar(p *[]string, name string, value []string, usage string)
	Changed(name string) bool
}

// Bind adds the flags to a command.
func (f *Flags) Bind(set FlagSet) {
	f.set = set
	set.StringVar(&f.reserve, "reserve", "", "`share` of the node's allocatable CPU that is not sold, 0 to below 1, such as 0.05 or 5%")
	set.Float64Var(&f.credits, "credits", 0, "highest factor on the budget of a pod that used less than its share before, 1 to 10")
	set.BoolVar(&f.off, "off", false, "MBCAS is off: every pod has its declared limits")
	for _, p := range podFlags {
		set.StringArrayVar(p.of(&f.pods), p.name, nil, p.usage)
	}
}

// Change is what the flags say, validated.
func (f *Flags) Change() (Change, error) {
	c := Change{Off: f.off}
	if f.set.Changed("reserve") {
		reserve, err := share(f.reserve)
		if err != nil {
			return c, fmt.Errorf("--reserve %s: want a share of at least 0 and less than 1, such as 0.05 or 5%%", f.reserve)
		}
		c.Reserve = &reserve
	}
	if f.set.Changed("credits") {
		c.Credits = &f.credits
	}
	if err := c.AddPods(f.pods); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// share reads a share of at least 0 and less than 1, as a number or in percent.
func share(text string) (float64, error) {
	digits, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if percent {
		v /= 100
	}
	if err == nil && !(v >= 0 && v < 1) {
		err = strconv.ErrRange
	}
	return v, err
}

// ErrNoChange is the error of a command without a change.
var ErrNoChange = errors.New("nothing is changed, so nothing would be otherwise: give a change, such as --reserve 5% or --off; " +
	"--help has all")

// ErrNoPod is the error of a change of pods that are not in the recording.
var ErrNoPod = errors.New("no managed pod of the recording is one of those named: check the patterns; they are NAMESPACE/NAME")
