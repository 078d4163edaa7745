// Command empty does nothing: what is left is the cost of Go's own start.
package main

func main() {}
