package record

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
)

// WriteCSV writes every sample of the runs, for whoever wants to draw something else.
func WriteCSV(w io.Writer, runs []Run) error {
	out := csv.NewWriter(w)
	out.Write([]string{"run", "second", "phase", "pod", "request_m", "limit_m", "kernel_limit_m", "use_m",
		"throttled_ms_per_s", "throttled_periods", "demand_m", "price", "p50_ms", "p99_ms"})
	for _, r := range runs {
		for _, s := range r.Samples {
			out.Write([]string{r.Name, fmt.Sprintf("%.2f", s.At.Seconds()), s.Phase, s.App, whole(s.Request), whole(s.Limit), whole(s.Quota),
				whole(s.Use), fmt.Sprintf("%.1f", s.Throttled), fmt.Sprintf("%.2f", s.Ratio), whole(s.Demand), s.Price,
				fmt.Sprintf("%.1f", s.P50), fmt.Sprintf("%.1f", s.P99)})
		}
	}
	out.Flush()
	return out.Error()
}

func whole(v int64) string { return strconv.FormatInt(v, 10) }
