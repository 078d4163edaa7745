// Command launch starts programs for the benchmark, one for each line on its stdin, and answers with what each cost:
// nanoseconds from spawn to exit, minor faults, peak RSS in KB, exit code.
//
// It is a program of its own because it is small: the kernel counts the parent's peak RSS into that of a child.
//
// A line is fields separated by 0x1F: bytes for stdin, working directory, number of variables, the variables, the
// words.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		os.Exit(1)
	}

	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}

		answer, err := launch(strings.Split(strings.TrimSuffix(line, "\n"), "\x1f"), null.Fd())
		if err != nil {
			answer = "error " + err.Error()
		}

		fmt.Println(answer)
	}
}

func launch(f []string, null uintptr) (string, error) {
	vars, err := strconv.Atoi(f[2])
	if err != nil {
		return "", err
	}

	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}

	defer r.Close()
	if _, err := w.WriteString(f[0]); err != nil { // less than a pipe holds
		return "", err
	}

	w.Close()
	words := f[3+vars:]
	attr := &syscall.ProcAttr{Dir: f[1], Env: f[3 : 3+vars], Files: []uintptr{r.Fd(), null, null}}
	start := time.Now()
	pid, err := syscall.ForkExec(words[0], words, attr)
	if err != nil {
		return "", err
	}

	var status syscall.WaitStatus
	var use syscall.Rusage
	for {
		if _, err = syscall.Wait4(pid, &status, 0, &use); err != syscall.EINTR {
			break
		}
	}

	took := time.Since(start)
	return fmt.Sprint(took.Nanoseconds(), " ", use.Minflt, " ", use.Maxrss, " ", status.ExitStatus()), err
}
