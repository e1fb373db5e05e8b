package record

import (
	"time"

	"encoding/csv"
	"fmt"
	"github.com/mbcas/mbcas/test/demo/internal/script"
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

// ReadCSV reads what WriteCSV wrote, as far as it can be drawn: samples, without requests. The scripts are
// those that were played.
func ReadCSV(r io.Reader, scripts map[string]script.Script) ([]Run, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, err
	}
	var runs []Run
	for i, row := range rows[min(1, len(rows)):] {
		if len(runs) == 0 || runs[len(runs)-1].Name != row[0] {
			runs = append(runs, Run{Name: row[0], Script: scripts[row[0]]})
		}
		s := Sample{Phase: row[2], App: row[3], Price: row[11]}
		var second float64
		for column, to := range map[int]any{
			1: &second, 4: &s.Request, 5: &s.Limit, 6: &s.Quota, 7: &s.Use, 8: &s.Throttled, 9: &s.Ratio, 10: &s.Demand, 12: &s.P50, 13: &s.P99,
		} {
			if _, err := fmt.Sscan(row[column], to); err != nil {
				return nil, fmt.Errorf("line %d, column %d: %w", i+2, column+1, err)
			}
		}
		s.At = time.Duration(second * float64(time.Second))
		last := &runs[len(runs)-1]
		last.Samples = append(last.Samples, s)
	}
	return runs, nil
}
