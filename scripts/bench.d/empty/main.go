// Command empty does nothing: what the start and the end of a Go program cost.
package main

func main() {}
