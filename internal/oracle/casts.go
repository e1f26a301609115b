package main

import "io"

func judgeCasts(name string, raw []byte, out io.Writer) (bool, error)   { return false, nil }
func judgeCapture(name string, raw []byte, out io.Writer) (bool, error) { return false, nil }
func judgeLayout(name string, raw []byte, out io.Writer) (bool, error)  { return false, nil }
func benchPlan([]string, io.Writer) error                               { return nil }
