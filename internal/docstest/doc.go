// Package docstest keeps the Markdown pages true where a program can tell: a link leads to something, a heading that
// is linked exists, and a make target that a page names is in the Makefile.
//
// It has no code of its own, only tests. It reads no link that leaves the repository.
package docstest
