// TLS of all clients: with the authority in the file that INTEROP_TLS_CA names, and with the certificate and key in the
// file that INTEROP_TLS_KEYSTORE names, if the variables are set.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func security() kgo.Opt {
	authority := os.Getenv("INTEROP_TLS_CA")
	if authority == "" {
		return kgo.WithLogger(nil)
	}
	pem, err := os.ReadFile(authority)
	if err != nil {
		panic(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if store := os.Getenv("INTEROP_TLS_KEYSTORE"); store != "" {
		pair, err := tls.LoadX509KeyPair(store, store)
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return kgo.DialTLSConfig(config)
}
