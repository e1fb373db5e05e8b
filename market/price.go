package market

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Price is budget per thousandth of a core. At 1 a budget buys its own size, so a pod gets what it
// requested; at 0.5 it gets twice that. 0 means that CPU is not scarce. In objects it is text such
// as "0.340", see String.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=24
// +kubebuilder:validation:Pattern=`^[0-9]+\.[0-9]{3,}$`
type Price float64

// MaxPrice is a price at which no budget buys anything.
const MaxPrice Price = 1e10

// maxDecimals bounds the length of the text. The lowest positive price of a valid problem is 10^-9.
const maxDecimals = 20

// priceText is the form that the API server accepts.
var priceText = regexp.MustCompile(`^[0-9]+\.[0-9]{3,}$`)

// String writes three decimals and, of a price below a tenth, three significant digits: a price
// that caps a pod never reads as "0.000", which is no price.
func (p Price) String() string {
	decimals := 3
	if p > 0 && p < 0.1 {
		_, exponent, _ := strings.Cut(strconv.FormatFloat(float64(p), 'e', 2, 64), "e")
		n, _ := strconv.Atoi(exponent)
		decimals = min(maxDecimals, max(decimals, 2-n))
	}
	return strconv.FormatFloat(float64(p), 'f', decimals, 64)
}

// MarshalText writes the form of String.
func (p Price) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// MarshalJSON writes the form of String, as text: conversions of objects by type alone need it.
func (p Price) MarshalJSON() ([]byte, error) { return []byte(`"` + p.String() + `"`), nil }

// UnmarshalText reads the form that the API server accepts, and no other.
func (p *Price) UnmarshalText(text []byte) error {
	if !priceText.Match(text) {
		return fmt.Errorf(
			"price %q: want budget per thousandth of a core with at least three decimals, such as \"0.340\"", text)
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return fmt.Errorf("price %q: %w", text, err)
	}
	*p = Price(v)
	return nil
}

// UnmarshalJSON reads the form of MarshalJSON and no other; null leaves the price as it is.
func (p *Price) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	text, err := strconv.Unquote(string(data))
	if err != nil {
		return fmt.Errorf("price %s: want text such as \"0.340\"", data)
	}
	return p.UnmarshalText([]byte(text))
}
