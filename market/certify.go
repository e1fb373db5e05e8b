package market

import "fmt"

// Certify proves that a result is optimal for its problem without solving it again, or returns why
// it is not. It checks the Karush-Kuhn-Tucker conditions of the convex programme of the package
// comment. Every usage is clamp(w/p, low, top), which settles stationarity and the signs of the
// multipliers of the bounds; the usages fit into the supply; and no supply is left at a positive
// price (complementary slackness). Usages are compared without rounding, to one part in 10^9 of the
// supply.
func Certify(p Problem, r Result) error {
	if err := p.Validate(); err != nil {
		return err
	}
	var usage, low, top float64
	for _, b := range p.Bids {
		l, t := float64(min(b.Demand, b.Floor)), float64(min(b.Demand, b.Ceiling))
		x := t
		if r.Price > 0 {
			x = max(l, min(t, float64(b.Budget.positive())/float64(r.Price)))
		}
		usage, low, top = usage+x, low+l, top+t
	}
	supply := float64(p.Supply)
	tolerance := float64(1e-9 * max(supply, 1))
	switch {
	case r.Price < 0 || r.Price > MaxPrice:
		return fmt.Errorf("price %v: want 0 to %v", r.Price, MaxPrice)
	case r.FloorsExceedSupply && low <= supply:
		return fmt.Errorf("the result says that floors exceed the supply, but they use %gm of %gm", low, supply)
	case r.FloorsExceedSupply:
		return nil
	case low > supply:
		return fmt.Errorf("floors use %gm of a supply of %gm, and the result does not say so", low, supply)
	case r.Price == 0 && top > supply:
		return fmt.Errorf("price 0, but bids demand %gm of a supply of %gm", top, supply)
	case r.Price == 0:
		return nil
	case r.Price == MaxPrice && low == supply:
		return nil
	case usage > supply+tolerance:
		return fmt.Errorf("price %g: usage %gm exceeds the supply %gm", float64(r.Price), usage, supply)
	case usage < supply-tolerance:
		return fmt.Errorf("price %g: %gm of the supply %gm is left at a positive price",
			float64(r.Price), supply-usage, supply)
	}
	return nil
}
