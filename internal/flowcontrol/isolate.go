package flowcontrol

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Each runs f on every item, at most n at a time, and waits for all. A panic is an error of its item.
func Each[T any](n int, items []T, f func(T) error) error {
	errs := make([]error, len(items))
	slots := make(chan struct{}, n)
	var wg sync.WaitGroup
	for i, t := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = Guard(func() error { return f(t) })
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Panic is the error of what has panicked.
type Panic struct {
	Value any
	Stack string
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Guard runs f, and returns a panic as an error.
func Guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panic{v, string(debug.Stack())}
		}
	}()
	return f()
}

// Isolate returns what decide makes of all items, or where that panics, of those that it does not panic
// about alone. It tells failed of the others.
func Isolate[T, R any](items []T, decide func([]T) []R, failed func(T, error)) (made []R) {
	try := func(items []T) error {
		return Guard(func() error {
			made = decide(items)
			return nil
		})
	}
	if try(items) == nil {
		return made
	}
	var rest []T
	for _, item := range items {
		if err := try([]T{item}); err != nil {
			failed(item, err)
		} else {
			rest = append(rest, item)
		}
	}
	if err := try(rest); err != nil {
		for _, item := range rest {
			failed(item, err)
		}
		return nil
	}
	return made
}
