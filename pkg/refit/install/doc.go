// Package install holds what installers share: the variables that their templates see, and how they are written out.
// The installers themselves lie in the folders beside it, each behind refit.Installer:
//
//	command    runs a program: its arguments and environment name the version's files, its exit code is the answer
//	httpcall   makes a list of HTTP calls, with the calls that undo them
//	installtest   what every installer must do, as a suite of tests
//
// Installers of real engines lie here too. The one for engines that map the arena by its name is refit.Shm, and a Go
// function becomes one by refit.InstallerFunc.
//
// The main law: an installer's error says where it leaves the engine. See refit.Refused, Unreachable and Unknown.
package install
