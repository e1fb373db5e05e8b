// Command inside is a pod's view of the cluster.
//
//	inside        finds the API server the way every client in a pod does, and requests
//	              it something that only a service account may know
//	inside burn   demands a whole core
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"
)

const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

func main() {
	if len(os.Args) == 2 && os.Args[1] == "burn" {
		for i := 0; ; i++ {
			runtime.KeepAlive(i)
		}
	}
	if err := ask(); err != nil {
		fmt.Fprintln(os.Stderr, "inside:", err)
		os.Exit(1)
	}
}

func ask() error {
	token, err := os.ReadFile(serviceAccount + "token")
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(serviceAccount + "ca.crt")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	req, err := http.NewRequest(http.MethodGet, "https://"+host+"/apis", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+string(token))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	client := http.Client{Timeout: 10 * time.Second, Transport: transport}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", req.URL, resp.Status, body)
	}
	fmt.Println("asked", req.URL)
	return nil
}
