package market

import (
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestPriceText(t *testing.T) {
	for price, want := range map[Price]string{
		0: "0.000", 1: "1.000", 0.34: "0.340", 2.0004: "2.000", 0.1: "0.100", 0.01: "0.0100", 0.09996: "0.100",
		0.3333: "0.333", 12345.6789: "12345.679", 0.0556: "0.0556", 0.0004: "0.000400", 2.0 / 57_600: "0.0000347", 1e-9: "0.00000000100", 1e-30: "0.00000000000000000000", MaxPrice: "10000000000.000",
	} {
		if got := price.String(); got != want {
			t.Errorf("%v = %q, want %q", float64(price), got, want)
		}
	}
	for _, bad := range []string{`""`, `"1"`, `"1.00"`, `".500"`, `"-1.000"`, `"1e3"`, `"NaN"`, `"+Inf"`, `1.000`, `" 1.000"`} {
		if err := json.Unmarshal([]byte(bad), new(Price)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		want := Price(math.Pow(10, rapid.Float64Range(-12, 10).Draw(t, "exponent")))
		data, err := json.Marshal(map[string]Price{"x": want})
		if err != nil || len(want.String()) > 24 {
			t.Fatalf("%s, %v", data, err)
		}
		var back map[string]Price
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if got := back["x"]; math.Abs(float64(got/want)-1) > 0.0051 || got.String() != want.String() {
			t.Fatalf("%v becomes %v", want, got)
		}
	})
}
