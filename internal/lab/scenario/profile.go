package scenario

import "time"

// Profile is a figure over time: exactly one of the kinds. A plain number in a file is a Constant.
// Times count from the start of the pod.
type Profile struct {
	Constant *float64 `yaml:"constant"`
	Step     *Step    `yaml:"step"`
	Ramp     *Ramp    `yaml:"ramp"`
	Square   *Square  `yaml:"square"`
	Sine     *Sine    `yaml:"sine"`
	Burst    *Burst   `yaml:"burst"`
	Noise    *Noise   `yaml:"noise"`
	Trace    *Trace   `yaml:"trace"`
}

// Step is Before until At, and After from then on.
type Step struct {
	Before float64       `yaml:"before"`
	After  float64       `yaml:"after"`
	At     time.Duration `yaml:"at"`
}

// Ramp goes from From at Start to To at End in a straight line.
type Ramp struct {
	From  float64       `yaml:"from"`
	To    float64       `yaml:"to"`
	Start time.Duration `yaml:"start"`
	End   time.Duration `yaml:"end"`
}

// Square is Low until Start, then High for On and Low for Off alternately.
type Square struct {
	Low   float64       `yaml:"low"`
	High  float64       `yaml:"high"`
	Start time.Duration `yaml:"start"`
	On    time.Duration `yaml:"on"`
	Off   time.Duration `yaml:"off"`
}

// Sine oscillates around Mean by Amplitude with Period, and is never below 0.
type Sine struct {
	Mean      float64       `yaml:"mean"`
	Amplitude float64       `yaml:"amplitude"`
	Period    time.Duration `yaml:"period"`
	// Phase is the share of a period at which it starts, 0 to 1.
	Phase float64 `yaml:"phase"`
}

// Burst is High from Start for Length, again after each Period (0: once), and Low otherwise.
type Burst struct {
	Low    float64       `yaml:"low"`
	High   float64       `yaml:"high"`
	Start  time.Duration `yaml:"start"`
	Length time.Duration `yaml:"length"`
	Period time.Duration `yaml:"period"`
	// Jitter, 0 to 1, delays each burst at random; at 1 it is anywhere in its period.
	Jitter float64 `yaml:"jitter"`
}

// Noise is a random walk around Mean with the standard deviation StdDev. It is never below 0.
type Noise struct {
	Mean   float64 `yaml:"mean"`
	StdDev float64 `yaml:"stdDev"`
	// Interval is the time between two steps; 0: 1 s.
	Interval time.Duration `yaml:"interval"`
}

// Trace is recorded load.
type Trace struct {
	// File is a path, relative to the scenario's file.
	File   string `yaml:"file"`
	Format Format `yaml:"format"`
	// Scale multiplies the values of the file; 0: 1. For a usage trace the product is cores.
	Scale float64 `yaml:"scale"`
	// Loop repeats it after its end; otherwise the load is 0 then.
	Loop bool `yaml:"loop"`
	// From is the time in the trace at which it starts.
	From time.Duration `yaml:"from"`
	// Speed is how many times faster than recorded it runs, with the same values; 0: 1.
	Speed float64 `yaml:"speed"`

	recorded recorded
}

// Format is how a trace file is written.
type Format string

const (
	FormatRequests    Format = "requests"    // requests in one second, one number a line
	FormatTimestamped Format = "timestamped" // time in ms, comma, requests up to the next line's time
	FormatUsage       Format = "usage"       // time in s, comma, CPU use
)

// Formats are all formats.
var Formats = []Format{FormatRequests, FormatTimestamped, FormatUsage}
