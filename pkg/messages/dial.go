package messages

import (
	"crypto/tls"
	"log/slog"

	"github.com/nats-io/nats.go"
)

// DialConfig says how to reach the NATS servers. Zero is a plain connection.
type DialConfig struct {
	Name        string      // shown by the server's monitoring
	TLS         *tls.Config // nil: none unless the URL says tls://
	CredsFile   string      // JWT and nkey seed file
	NKeyFile    string      // nkey seed file
	InboxPrefix string      // "_INBOX"; the permission template gives each role its own
	Logger      *slog.Logger
}

// Dial connects to url with the reconnect settings that the control plane needs.
func Dial(url string, cfg DialConfig) (*nats.Conn, error) { return nil, errTodo }
