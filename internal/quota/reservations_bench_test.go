package quota

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkReservations is what one question costs while so many pods of a namespace wait for its quota, and
// grants of the last seconds, a hundred each second, are not all shown: with another replica, and without.
func BenchmarkReservations(b *testing.B) {
	for _, pods := range []int{30, 300, 3000} {
		for name, others := range map[string]float64{"alone": 0, "shared": 0.5} {
			b.Run(fmt.Sprintf("%d/%s", pods, name), func(b *testing.B) {
				r, now := newReservations(), noon
				room := []Room{{Name: "cores", Hard: 1e6, Used: 1000}}
				for i := range min(pods, 500) {
					at := now.Add(time.Duration(i-500) * 10 * time.Millisecond)
					r.Reserve(Increase{Namespace: "shop", Pod: fmt.Sprint("granted-", i), Below: 100}, room, at)
				}
				full := []Room{{Name: "cores", Hard: 1000, Used: 1000}}
				ask := make([]Increase, pods)
				for i := range ask {
					ask[i] = Increase{Namespace: "shop", Pod: fmt.Sprint(i), Below: 100, Others: others}
					r.Grants(ask[i], full, now)
				}
				i := 0
				for b.Loop() {
					r.Grants(ask[i%pods], full, now)
					i++
				}
			})
		}
	}
}
