// Package cpu has the unit of the market: thousandths of a CPU core.
package cpu

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Milli is an amount of CPU in thousandths of a core, the unit in which
// Kubernetes counts CPU. 1000 is one core used all the time. In objects it is text
// such as "1500m", in one spelling only.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=9
// +kubebuilder:validation:Pattern=`^(0|[1-9][0-9]{0,7})m$`
type Milli int64

const (
	// Core is one whole core.
	Core Milli = 1000

	// Quantum is the step in which limits are set. systemd rounds CPUQuota up to
	// it, and the kernel refuses a quota below 1 ms, which is 10m at the default
	// CFS period of 100 ms.
	Quantum Milli = 10

	// Largest is the largest amount that an object of MBCAS can hold: the pattern above takes eight digits.
	Largest Milli = 99_999_999
)

// FromCores rounds an amount in cores to the nearest thousandth.
// Amounts that are not finite or do not fit become 0.
func FromCores(cores float64) Milli {
	m := math.Round(cores * 1000)
	if math.IsNaN(m) || math.Abs(m) > 1e15 {
		return 0
	}
	return Milli(m)
}

// FromUsage is the mean amount in use when used CPU time was spent in elapsed wall time.
// It is 0 when elapsed is not positive.
func FromUsage(used, elapsed time.Duration) Milli {
	if elapsed <= 0 {
		return 0
	}
	return FromCores(float64(used) / float64(elapsed))
}

// Cores is m in cores.
func (m Milli) Cores() float64 { return float64(m) / 1000 }

// RoundDown is the largest multiple of step that is not above m. A step below 1 leaves m as it is.
func (m Milli) RoundDown(step Milli) Milli {
	if step < 1 {
		return m
	}
	r := m % step
	if r < 0 {
		r += step
	}
	return m - r
}

// RoundUp is the smallest multiple of step that is not below m. A step below 1 leaves m as it is.
func (m Milli) RoundUp(step Milli) Milli { return -((-m).RoundDown(step)) }

// Clamp is m held between low and high; low wins where they cross.
func (m Milli) Clamp(low, high Milli) Milli { return max(min(m, high), low) }

// String writes m as Kubernetes does in milli form: "1500m".
func (m Milli) String() string { return strconv.FormatInt(int64(m), 10) + "m" }

// MarshalText writes the form of String, so that objects and records read like Kubernetes
// quantities.
func (m Milli) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// MarshalJSON writes the form of String, too: conversions of objects that go by type alone ask for
// it.
func (m Milli) MarshalJSON() ([]byte, error) { return []byte(`"` + m.String() + `"`), nil }

// UnmarshalText reads the form of String; it takes no other, so that every value has one spelling.
func (m *Milli) UnmarshalText(text []byte) error {
	digits, ok := strings.CutSuffix(string(text), "m")
	if !ok {
		return fmt.Errorf("CPU amount %q: want thousandths of a core such as \"1500m\"", text)
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return fmt.Errorf("CPU amount %q: want thousandths of a core such as \"1500m\"", text)
	}
	*m = Milli(v)
	return nil
}

// UnmarshalJSON reads the form of MarshalJSON and no other.
func (m *Milli) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	text, err := strconv.Unquote(string(data))
	if err != nil {
		return fmt.Errorf("CPU amount %s: want text such as \"1500m\"", data)
	}
	return m.UnmarshalText([]byte(text))
}

// FitTotal takes from each limit the same share of what it has above its floor, so that together
// they are within total; 0: there is no bound. The floors are in the order of the limits, and not
// above them.
func FitTotal(limits, floors []Milli, total Milli) []Milli {
	var sum, least Milli
	for i := range limits {
		sum, least = sum+limits[i], least+floors[i]
	}
	if total == 0 || sum <= total {
		return limits
	}
	fitted := make([]Milli, len(limits))
	for i, l := range limits {
		above := (l - floors[i]).Cores() * (total - least).Cores() / (sum - least).Cores()
		fitted[i] = floors[i] + max(0, FromCores(above)).RoundDown(Quantum)
	}
	return fitted
}
