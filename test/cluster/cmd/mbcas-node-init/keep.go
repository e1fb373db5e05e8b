package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/node"
)

// keepNode keeps runtime, kubelet and image server running. It ends only with an error.
func keepNode() error {
	n, err := read(settings)
	if err != nil {
		return err
	}
	ended := make(chan error)
	go func() { ended <- keep("/usr/bin/containerd", node.RuntimeArgs(n.Config)...) }()
	if err := importPause(n.Config); err != nil {
		return err
	}
	go func() { ended <- keep(config.VMKubelet, node.KubeletArgs(n.Config, n.Node)...) }()
	go func() { ended <- serveImages(n) }()
	return <-ended
}

// keep starts the program again whenever it ends.
func keep(program string, args ...string) error {
	for {
		cmd := exec.Command(program, args...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "mbcas-node-init: %s ended: %v\n", program, cmd.Wait())
		time.Sleep(time.Second)
	}
}

// importPause waits for the runtime.
func importPause(c config.Config) error {
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		f, err := os.Open(c.PauseArchive())
		if err != nil {
			return err
		}
		err = importImage(context.Background(), c, f)
		f.Close()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func importImage(ctx context.Context, c config.Config, archive io.Reader) error {
	cmd := exec.CommandContext(ctx, "ctr", "--address="+c.ContainerdSocket(), "--namespace=k8s.io",
		"images", "import", "-")
	cmd.Stdin = archive
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("import an image: %w: %s", err, out)
	}
	return nil
}

// serveImages takes images: pods share the network with it, so it requires the
// administrator's certificate.
func serveImages(n config.Boot) error {
	authority, err := os.ReadFile(n.Config.PKI("ca.crt"))
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(authority)

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /images", func(w http.ResponseWriter, r *http.Request) {
		if err := importImage(r.Context(), n.Config, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := http.Server{
		Addr:    netip.AddrPortFrom(n.Config.Slot(n.Node.Index).IP, config.ImageServerPort).String(),
		Handler: mux,
		TLSConfig: &tls.Config{
			ClientAuth: tls.RequireAndVerifyClientCert,
			ClientCAs:  clients,
			VerifyConnection: func(s tls.ConnectionState) error {
				if s.PeerCertificates[0].Subject.CommonName != "admin" {
					return errors.New("not the administrator")
				}
				return nil
			},
		},
	}
	return server.ListenAndServeTLS(n.Config.PKI("kubelet-server.crt"), n.Config.PKI("kubelet-server.key"))
}
