// Command netonly is the least daemon in Go: it answers 20 bytes to whatever one read brings. usage: netonly SOCKET
package main

import (
	"net"
	"os"
)

func main() {
	l, err := net.Listen("unix", os.Args[1])
	if err != nil {
		os.Exit(1)
	}

	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}

		go func() {
			defer c.Close()
			buf := make([]byte, 4096)
			for {
				if _, err := c.Read(buf); err != nil {
					return
				}
				if _, err := c.Write([]byte("{\"ok\":true,\"seq\":1}\n")); err != nil {
					return
				}
			}
		}()
	}
}
