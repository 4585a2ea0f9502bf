package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is a program that says something in lines.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer // a worker ends when this is closed
	exited chan struct{}
	state  error // of the exit, once exited is closed
}

// start runs a program until ctx ends, and hands over each line of its stdout, or of its stderr.
func start(ctx context.Context, cmd *exec.Cmd, stdout bool, said func(line string)) *process {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	stdin, err := cmd.StdinPipe()
	must("start "+cmd.Path, err == nil, err)
	pipe := cmd.StderrPipe
	if stdout {
		pipe, cmd.Stderr = cmd.StdoutPipe, os.Stderr
	}
	lines, err := pipe()
	if err == nil {
		err = cmd.Start()
	}
	must("start "+cmd.Path, err == nil, err)
	p.stdin = stdin
	go func() {
		for in := bufio.NewScanner(lines); in.Scan(); {
			said(in.Text())
		}
		p.state = cmd.Wait()
		close(p.exited)
	}()
	context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	return p
}

// kill is kill -9. It returns once the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// serve starts a node of the hub and gives its address too.
func serve(ctx context.Context, where []string) (*process, string) {
	listening := make(chan string, 1)
	var mu sync.Mutex
	var log []string
	cmd := exec.CommandContext(ctx, os.Getenv("HUB_BINARY"), append([]string{"serve", "--listen", "127.0.0.1:0", "--limit-calls-per-minute", "0", "--log-level", "warn"}, where...)...)
	p := start(ctx, cmd, false, func(line string) {
		if url, ok := strings.CutPrefix(line, "listening on "); ok {
			listening <- url
		}
		mu.Lock()
		defer mu.Unlock()
		log = append(log, line)
	})
	failed := "ended at its start"
	select {
	case url := <-listening:
		return p, url
	case <-p.exited:
	case <-time.After(20 * time.Second):
		failed = "did not listen"
		p.kill()
	}
	mu.Lock()
	defer mu.Unlock()
	must("the hub "+failed, false, "\n", strings.Join(log, "\n"))
	return nil, ""
}

// operator runs a command beside the serving hub and decodes each document that it prints.
func operator[T any](ctx context.Context, where []string, args ...string) []T {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, os.Getenv("HUB_BINARY"), append(args, where...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	must(fmt.Sprint(args), err == nil, err, stderr.String())
	var list []T
	for in := json.NewDecoder(strings.NewReader(string(out))); ; {
		var one T
		if err = in.Decode(&one); err != nil {
			break
		}
		list = append(list, one)
	}
	must(fmt.Sprint(args), errors.Is(err, io.EOF), err)
	return list
}
