package demand

import "github.com/mbcas/mbcas/cpu"

// Bounds are the lower and the upper bounds of one container's limit. Within derives them once,
// from the container and from what Kubernetes objects demand. Package constraints then applies the
// bounds of the whole pod to Floor and Ceiling.
type Bounds struct {
	// Settable is the lowest limit that a resize sets: one quantum above the CPU request. A limit
	// above its request keeps the pod Burstable, and the API server refuses a resize that changes
	// the QoS class.
	Settable cpu.Milli
	// Minimum is the lowest limit with which the container can be left: Settable, or the declared
	// limit while that is lower and in force. With every limit as declared, a pod has the QoS class
	// that it was created with.
	Minimum cpu.Milli
	// Entitlement is the limit that the container is entitled to at any price: Settable, and 100m
	// or the declared limit, the lower of the two.
	Entitlement cpu.Milli
	// Floor is the lowest limit that the container may get: its entitlement, the floor of an HPA or
	// a LimitRange, or the lowest quota that the kernel takes, whichever is highest. A declared
	// limit in force may stay where it is, below the entitlement.
	Floor cpu.Milli
	// Ceiling is the highest limit that the container may get: the node's allocatable CPU, the
	// multiple of its declared limit or the ceiling of a constraint. It comes before the floor. Where
	// Settable is above it, Floor and Ceiling are the limit in force: the container is left as it is.
	Ceiling cpu.Milli
}

// Within is the container with bounds: floor is the one that Kubernetes objects set, 0 for none,
// and ceiling the highest limit that they and the node allow.
func (c Container) Within(floor, ceiling cpu.Milli) Container {
	b := Bounds{
		Settable:    Settable(c.Request),
		Entitlement: Entitlement(c.Request, c.Declared),
		Floor:       c.Limit,
		Ceiling:     ceiling,
	}
	b.Minimum = b.Settable
	asDeclared := c.Limit == c.Declared && c.Limit >= cpu.Quantum
	if asDeclared {
		b.Minimum = min(b.Settable, c.Limit)
	}
	switch {
	case b.Settable > ceiling:
		b.Minimum, b.Ceiling = c.Limit, c.Limit
	case asDeclared && floor <= c.Limit && c.Limit <= ceiling:
		b.Floor = max(floor, min(b.Entitlement, c.Limit))
	default:
		b.Floor = min(max(floor, b.Entitlement), ceiling)
	}
	c.Bounds = b
	return c
}

// DefaultMaxRaise is the multiple of its declared limit that the limit of a container reaches at most, where no setting
// says another. Programs that size themselves by their limit would else do so by the node.
const DefaultMaxRaise = 8

// RaiseCeiling is how far raises take a container with this declared limit. One below a quantum acts as a quantum.
func RaiseCeiling(declared cpu.Milli, maxRaise int) cpu.Milli {
	return max(declared, (max(declared, cpu.Quantum) * cpu.Milli(maxRaise)).RoundDown(cpu.Quantum))
}

// BidFloor is the floor of the container's bid. A floor above the entitlement keeps the limit up
// but buys nothing: beyond its share the container gets what the kernel's weights leave it.
func (b Bounds) BidFloor() cpu.Milli { return min(b.Floor, b.Entitlement) }

// Settable is the lowest limit that a resize sets for a container with this CPU request.
func Settable(request cpu.Milli) cpu.Milli { return (request + cpu.Quantum).RoundUp(cpu.Quantum) }

// Entitlement is the limit that a container is entitled to at any price, by its CPU request and its
// declared limit.
func Entitlement(request, declared cpu.Milli) cpu.Milli {
	return max(Settable(request), min(100, declared).RoundUp(cpu.Quantum))
}
