package baseline

import (
	"time"

	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Static leaves the limits as they are declared.
type Static struct{}

// Turn implements sim.Policy.
func (Static) Turn(r *sim.Reading) ([]sim.Action, time.Duration) { return nil, r.Now + time.Hour }
