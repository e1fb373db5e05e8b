package config

import (
	"net/netip"
	"testing"
)

func TestSlotsShareTheRange(t *testing.T) {
	for _, pods := range []string{"10.244.0.0/24", "10.1.0.0/16", "192.168.7.16/28"} {
		c := Default("/x", true)
		c.PodRange = netip.MustParsePrefix(pods)
		end := c.PodRange.Addr()
		for i := range Slots {
			s := c.Slot(i, "n")
			if !end.Less(s.IP) || !s.IP.Less(s.First) || !s.First.Less(s.Last) {
				t.Errorf("%s, slot %d: %+v overlaps what is before it (up to %v)", pods, i, s, end)
			}
			if !c.PodRange.Contains(s.Last) || !c.PodRange.Contains(s.Last.Next()) {
				t.Errorf("%s, slot %d: %v is the broadcast address or beyond the range", pods, i, s.Last)
			}
			if s.MaxPods() < 2 || s.MaxPods() > 110 {
				t.Errorf("%s, slot %d: room for %d pods", pods, i, s.MaxPods())
			}
			if mac := s.HardwareAddr(); mac[0]&1 != 0 || mac[0]&2 == 0 {
				t.Errorf("%v is not a locally administered address of one station", mac)
			}
			end = s.Last
		}
	}
	if got := Default("/x", true).HostSlot().MaxPods(); got != 110 {
		t.Errorf("this machine's node has room for %d pods, want 110", got)
	}
}

func TestLinkNames(t *testing.T) {
	c := Default("/x", true)
	c.Bridge = "thirteenchars"[:12]
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, l := range c.Links() {
		if len(l) > 15 {
			t.Errorf("%s is longer than an interface's name may be", l)
		}
	}
}
