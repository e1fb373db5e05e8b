package scenario

import "time"

// Profile is a figure over time: exactly one of the kinds. A plain number in a file is a Constant.
// Times count from the start of the pod.
type Profile struct {
	Constant *float64 `yaml:"constant" want:"min=0 max=outer"` // it never changes
	Step     *Step    `yaml:"step"`                            // it changes once
	Ramp     *Ramp    `yaml:"ramp"`                            // it changes in a straight line
	Square   *Square  `yaml:"square"`                          // it is high and low in turn
	Sine     *Sine    `yaml:"sine"`                            // it oscillates
	Burst    *Burst   `yaml:"burst"`                           // it is high for a while, once or repeatedly
	Noise    *Noise   `yaml:"noise"`                           // it is a random walk
	Trace    *Trace   `yaml:"trace"`                           // it was recorded
}

// Step is Before until At, and After from then on.
type Step struct {
	Before float64       `yaml:"before" want:"min=0 max=outer"` // until then
	After  float64       `yaml:"after" want:"min=0 max=outer"`  // from then on
	Time   time.Duration `yaml:"at"`                            // of the change
}

// Ramp goes from From at Start to To at End in a straight line.
type Ramp struct {
	From  float64       `yaml:"from" want:"min=0 max=outer"` // until the start
	To    float64       `yaml:"to" want:"min=0 max=outer"`   // from the end on
	Start time.Duration `yaml:"start"`                       // of the line
	End   time.Duration `yaml:"end" want:"required"`         // of the line
}

// Square is Low until Start, then High for On and Low for Off alternately.
type Square struct {
	Low   float64       `yaml:"low" want:"min=0 max=outer"`   // and until the start
	High  float64       `yaml:"high" want:"min=0 max=outer"`  // of the cycle
	Start time.Duration `yaml:"start"`                        // of the first cycle
	On    time.Duration `yaml:"on" want:"required min=10ms"`  // how long it is high
	Off   time.Duration `yaml:"off" want:"required min=10ms"` // how long it is low
}

// Sine oscillates around Mean by Amplitude with Period, and is never below 0.
type Sine struct {
	Mean      float64       `yaml:"mean" want:"min=0 max=outer"`      // of a period
	Amplitude float64       `yaml:"amplitude" want:"min=0 max=outer"` // of the wave
	Period    time.Duration `yaml:"period" want:"required above=0s"`  // of the wave
	// Phase is the share of a period at which it starts, 0 to 1.
	Phase float64 `yaml:"phase" want:"min=0 max=1"`
}

// Burst is High from Start for Length, again after each Period (0: once), and Low otherwise.
type Burst struct {
	Low    float64       `yaml:"low" want:"min=0 max=outer"`      // between bursts
	High   float64       `yaml:"high" want:"min=0 max=outer"`     // in a burst
	Start  time.Duration `yaml:"start"`                           // of the first burst
	Length time.Duration `yaml:"length" want:"required min=10ms"` // of a burst
	Period time.Duration `yaml:"period"`                          // from burst to burst; 0: a single one
	// Jitter, 0 to 1, delays each burst at random; at 1 it is anywhere in its period.
	Jitter float64 `yaml:"jitter" want:"min=0 max=1"`
}

// Noise is a random walk around Mean with the standard deviation StdDev. It is never below 0.
type Noise struct {
	Mean   float64 `yaml:"mean" want:"min=0 max=outer"`   // over time
	StdDev float64 `yaml:"stdDev" want:"min=0 max=outer"` // standard deviation
	// Interval is the time between two steps; 0: 1 s.
	Interval time.Duration `yaml:"interval" want:"default=1s min=10ms"`
}

// Trace is recorded load.
type Trace struct {
	// File is a path, relative to the scenario's file.
	File   string `yaml:"file" want:"required"`
	Format Format `yaml:"format" want:"required oneof=requests,timestamped,usage"` // how the file is written
	// Scale multiplies the values of the file; 0: 1. For a usage trace the product is cores.
	Scale float64 `yaml:"scale" want:"default=1 above=0 max=1e9"`
	// Loop repeats it after its end; otherwise the load is 0 then.
	Loop bool `yaml:"loop"`
	// From is the time in the trace at which it starts.
	From time.Duration `yaml:"from" want:"max=1000000h"`
	// Speed is how many times faster than recorded it runs, with the same values; 0: 1.
	Speed float64 `yaml:"speed" want:"default=1 above=0 max=1e5"`

	recorded recorded
}

// Format is how a trace file is written.
type Format string

const (
	FormatRequests    Format = "requests"    // requests in one second, one number a line
	FormatTimestamped Format = "timestamped" // time in ms, comma, requests up to the next line's time
	FormatUsage       Format = "usage"       // time in s, comma, CPU use
)
