// Package composetest holds docker-compose.yml, the Dockerfile and the server's configuration to what they promise,
// without a container engine: the file is parsed by the compose specification's own library, the programs that it
// starts are built and asked whether they know the flags and variables that it sets, and the server's configuration
// is read by the server's own parser.
//
// It has no code of its own, only tests. It never starts a container and never reaches for an image.
//
// The law: what a service waits for exists and can become healthy, what it is told it understands, and what it keeps
// survives it.
package composetest
