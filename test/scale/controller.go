package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/mbcas/mbcas/internal/kube"
)

// controllerProcess is the controller as it ships, with the rights that its installation gives it.
type controllerProcess struct {
	cmd        *exec.Cmd
	ended      chan struct{}
	metrics    string // address of its metrics
	kubeconfig string
}

// servesMetrics is the log line, of level info, that has the address of the metrics.
var servesMetrics = regexp.MustCompile(`"starting server","name":"metrics","addr":"([^"]+)"`)

// startController starts the program and waits until it serves metrics.
func (w *world) startController(ctx context.Context) (*controllerProcess, error) {
	account := "system:serviceaccount:" + kube.SystemNamespace + ":mbcas-controller"
	user, err := w.api.AddUser(account, "system:serviceaccounts", "system:serviceaccounts:"+kube.SystemNamespace)
	if err != nil {
		return nil, fmt.Errorf("add the controller's account: %w", err)
	}
	text, err := user.KubeConfig()
	if err != nil {
		return nil, err
	}
	c := &controllerProcess{ended: make(chan struct{}), kubeconfig: filepath.Join(w.dir, "controller.kubeconfig")}
	if err := os.WriteFile(c.kubeconfig, text, 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(w.out, "controller.log"))
	if err != nil {
		return nil, err
	}
	c.cmd = tied(w.controller, append([]string{
		"--kubeconfig=" + c.kubeconfig, "--metrics-address=127.0.0.1:0", "--health-address=127.0.0.1:0",
	}, w.args...)...)
	c.cmd.Env = append(os.Environ(), "GOGC=", fmt.Sprintf("MBCAS_MEMORY_LIMIT=%d", w.memory*mebibyte))
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the controller: %w", err)
	}
	go func() {
		_ = c.cmd.Wait() // its log says why it ended
		log.Close()
		close(c.ended)
	}()
	return c, w.await(ctx, "the controller serves its metrics", time.Minute, func() bool {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			return false
		}
		m := servesMetrics.FindSubmatch(text)
		if m == nil {
			return false
		}
		c.metrics = "http://" + string(m[1]) + "/metrics"
		_, err = read(ctx, nil, c.metrics)
		return err == nil
	})
}

// stop ends the controller and waits for it.
func (c *controllerProcess) stop() {
	_ = c.cmd.Process.Signal(os.Interrupt) // it may have ended
	select {
	case <-c.ended:
	case <-time.After(10 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
}

// alive is an error once the controller has ended.
func (c *controllerProcess) alive() error {
	select {
	case <-c.ended:
		return fmt.Errorf("the controller ended (%s): see controller.log", c.cmd.ProcessState)
	default:
		return nil
	}
}

// tied is a command that is killed when this process dies, however that happens.
func tied(name string, args ...string) *exec.Cmd {
	if _, err := exec.LookPath("setpriv"); err != nil {
		return exec.Command(name, args...)
	}
	return exec.Command("setpriv", append([]string{"--pdeathsig", "KILL", name}, args...)...)
}
