//go:build linux

package kernel

// newStalls has room for the stalls of n containers; nil where they are not read or the kernel has
// none.
func (h *Host) newStalls(n int) []Stalls {
	if !h.cfg.MemoryIOPressure || h.tree.psi == "" || h.psiUnsupported || h.closed {
		return nil
	}
	return make([]Stalls, n)
}

// readStalls reads those of the containers of p that were found. What the kernel does not have
// stays unknown. The next Read finds out whether the cgroup itself was removed.
func (h *Host) readStalls(p *pod, found []Group, out []Stalls) {
	for i := range found {
		if found[i].Found {
			found[i].Stalls = &out[i]
			g := p.container(found[i].ID).group
			out[i] = Stalls{Memory: h.stall(g, memoryFile), IO: h.stall(g, ioFile)}
		}
	}
}

func (h *Host) stall(g *group, file int) Pressure {
	p, why, err := g.pressure(h.tree, &h.reader, file)
	if why != pressureRead {
		g.closeFile(file)
	}
	if why == pressureUnsupported {
		h.noPSI()
	}
	if err != nil {
		h.logFault("stalls", err)
	}
	return p
}

// pressures are the pressure files to read of a container or, with an empty id, of a pod's own
// cgroup.
func (h *Host) pressures(id string) []int {
	switch {
	case h.psiUnsupported:
		return nil
	case id != "" && h.cfg.MemoryIOPressure:
		return allPressure
	}
	return cpuPressure
}

// noPSI records that the kernel has the files but refuses to read them.
func (h *Host) noPSI() {
	if h.psiUnsupported {
		return
	}
	h.psiUnsupported = true
	l := h.Layout()
	l.PSI = false
	h.layout.Store(&l)
	h.log.Info("kernel reports no pressure", "layout", l)
}
