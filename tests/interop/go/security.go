// TLS of all clients: with the authority in the file that INTEROP_TLS_CA names, if the variable is set.
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
	return kgo.DialTLSConfig(config)
}
