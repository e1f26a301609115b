// Package wiring connects a program to what surrounds it: NATS, telemetry, transports. Its structures are embedded in the
// programs' configurations, so that the same flag means the same everywhere.
package wiring
