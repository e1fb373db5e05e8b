//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/client"
)

// units make, by the kind of the job, a function that does one unit of work. A unit is the same work each time.
var units = map[string]func(data string) (func(context.Context) error, error){
	"xz":     compression,
	"matrix": matrix,
	"gcc":    compiler,
}

// job does units of work by plans.
type job struct {
	unit  func(context.Context) error
	plans chan client.Plan

	mu     sync.Mutex
	counts client.Done
}

func newJob(unit func(string) (func(context.Context) error, error), data string) (*job, error) {
	do, err := unit(data)
	return &job{unit: do, plans: make(chan client.Plan, 8)}, err
}

// run does the plans in turn until ctx ends.
func (j *job) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-j.plans:
			j.play(ctx, p)
		}
	}
}

// play works on as many threads as the plan has, from its beginning to its end. What is not done by then does not
// count, and nothing of a plan that is uncounted.
func (j *job) play(ctx context.Context, p client.Plan) {
	if !p.Uncounted {
		j.mu.Lock()
		j.counts = client.Done{From: p.From}
		j.mu.Unlock()
	}
	// Of the threads of a matrix job each needs a real one, and one is for the answers. The default would follow
	// the CPU limit, in which compared runs differ.
	runtime.GOMAXPROCS(max(p.Threads+1, runtime.NumCPU()))
	select {
	case <-ctx.Done():
		return
	case <-time.After(time.Until(p.From)):
	}
	ctx, cancel := context.WithDeadline(ctx, p.Until)
	defer cancel()
	var threads sync.WaitGroup
	for range p.Threads {
		threads.Go(func() {
			for {
				err := j.unit(ctx)
				if ctx.Err() != nil {
					return
				}
				j.mu.Lock()
				switch {
				case err != nil:
					j.counts.Error = err.Error()
				case !p.Uncounted:
					j.counts.Units++
				}
				j.mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	threads.Wait()
	j.mu.Lock()
	j.counts.Ended = true
	j.mu.Unlock()
}

func (j *job) count() client.Done {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.counts
}

// corpus is text that compresses about as prose does: words of a fixed vocabulary, from a fixed seed.
func corpus(size int) []byte {
	rng := rand.New(rand.NewPCG(1, 1))
	vocabulary := make([][]byte, 4000)
	for i := range vocabulary {
		var word []byte
		for range 2 + rng.IntN(9) {
			word = append(word, byte('a'+rng.IntN(26)))
		}
		vocabulary[i] = append(word, ' ')
	}
	var out bytes.Buffer
	for out.Len() < size {
		out.Write(vocabulary[int(rng.ExpFloat64()*400)%len(vocabulary)])
	}
	return out.Bytes()[:size]
}

// compression is xz over 256 KiB of text.
func compression(data string) (func(context.Context) error, error) {
	path := filepath.Join(data, "corpus")
	if err := os.WriteFile(path, corpus(256<<10), 0o600); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return execute(ctx, "xz", "-6", "--threads=1", "--stdout", path) }, nil
}

// compiler is the C compiler over a source file of 24 functions.
func compiler(data string) (func(context.Context) error, error) {
	var c bytes.Buffer
	for i := range 24 {
		fmt.Fprintf(&c, "int f%d(int *a, int n) {\n\tint s = %d;\n\tfor (int i = 0; i < n; i++)\n"+
			"\t\tfor (int j = i; j < n; j += 3)\n\t\t\ts ^= a[i] * (a[j] + %d) >> (j & 7);\n\treturn s;\n}\n", i, i, i)
	}
	path := filepath.Join(data, "unit.c")
	if err := os.WriteFile(path, c.Bytes(), 0o600); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return execute(ctx, "gcc-12", "-O2", "-pipe", "-c", "-x", "c", path, "-o", "/dev/null")
	}, nil
}

// execute runs a program to its end. When ctx ends the program is killed with all that it has started: a compiler
// driver would leave its compiler behind.
func execute(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var messages bytes.Buffer
	cmd.Stderr = &messages
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, messages.Bytes())
	}
	return nil
}

// matrix is ten products of two matrices of 160 x 160, about what a layer of a small model takes.
func matrix(string) (func(context.Context) error, error) {
	const n, products = 160, 10
	rng := rand.New(rand.NewPCG(2, 2))
	a, b := make([]float64, n*n), make([]float64, n*n)
	for i := range a {
		a[i], b[i] = rng.Float64(), rng.Float64()
	}
	return func(ctx context.Context) error {
		c := make([]float64, n*n)
		for range products {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			multiply(n, a, b, c)
		}
		runtime.KeepAlive(c)
		return nil
	}, nil
}

// multiply adds the product of a and b to c.
func multiply(n int, a, b, c []float64) {
	for i := range n {
		for k := range n {
			x, row, out := a[i*n+k], b[k*n:(k+1)*n], c[i*n:(i+1)*n]
			for j, v := range row {
				out[j] += x * v
			}
		}
	}
}
