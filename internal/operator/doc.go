// Package operator is what refitctl does for the people who run a model: it looks at what the servers, this host and
// the files here say, and shows it as tables and sentences, or as JSON.
//
// It never takes part in a refit: it holds no lease, publishes no table and writes no status. What it changes is what an
// operator asked for by name: a model's stream and buckets, an order to roll back, files, arenas that nobody owns.
//
// A View is all that is known of a model at one moment. Rows are what a table shows of it, one a line; the same rows are
// the JSON. An Event is a difference between two views. Everything that is made of a View is a pure function of it.
//
// The law: what a process wrote of itself is shown as its own words, and never as terminal control characters.
package operator
