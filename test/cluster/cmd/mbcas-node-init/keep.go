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

	"github.com/mbcas/mbcas/test/cluster/internal/nodeconfig"
)

// keepNode keeps runtime and kubelet running and the image server running. It ends only with
// an error.
func keepNode() error {
	n, err := read(settings)
	if err != nil {
		return err
	}
	ended := make(chan error)
	go func() { ended <- keep(n.Runtime) }()
	if err := importImages(n); err != nil {
		return err
	}
	go func() { ended <- keep(n.Kubelet) }()
	go func() { ended <- open(n) }()
	return <-ended
}

// keep starts the program again whenever it ends.
func keep(p nodeconfig.Program) error {
	for {
		cmd := exec.Command(p.Path, p.Args...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "mbcas-node-init: %s ended: %v\n", p.Path, cmd.Wait())
		time.Sleep(time.Second)
	}
}

// importImages waits for the runtime.
func importImages(n nodeconfig.Node) error {
	for _, archive := range n.Images {
		deadline := time.Now().Add(5 * time.Minute)
		for {
			f, err := os.Open(archive)
			if err != nil {
				return err
			}
			err = importImage(context.Background(), n.ImageServer.Runtime, f)
			f.Close()
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return err
			}
			time.Sleep(time.Second)
		}
	}
	return nil
}

func importImage(ctx context.Context, socket string, archive io.Reader) error {
	cmd := exec.CommandContext(ctx, "ctr", "--address="+socket, "--namespace=k8s.io", "images", "import", "-")
	cmd.Stdin = archive
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("import an image: %w: %s", err, out)
	}
	return nil
}

// open serves images: pods share the network with it, so it requires the
// administrator's certificate.
func open(n nodeconfig.Node) error {
	authority, err := os.ReadFile(n.ImageServer.Authority)
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(authority)

	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /images", func(w http.ResponseWriter, r *http.Request) {
		if err := importImage(r.Context(), n.ImageServer.Runtime, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := http.Server{
		Addr:    netip.AddrPortFrom(n.Address.Addr(), uint16(n.ImageServer.Port)).String(),
		Handler: mux,
		TLSConfig: &tls.Config{
			ClientAuth: tls.RequireAndVerifyClientCert,
			ClientCAs:  clients,
			VerifyConnection: func(s tls.ConnectionState) error {
				if s.PeerCertificates[0].Subject.CommonName != nodeconfig.Administrator {
					return errors.New("not the administrator")
				}
				return nil
			},
		},
	}
	return server.ListenAndServeTLS(n.ImageServer.Certificate, n.ImageServer.Key)
}
